"""``mmcv.runner``: the runners, and what builds, saves and loads for a run."""
