"""mmpose's imports from this fork of pycocotools, whose release does not build with numpy 2."""
