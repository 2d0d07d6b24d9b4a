"""What mmpose imports of this fork of pycocotools, whose release does not build beside numpy 2."""
