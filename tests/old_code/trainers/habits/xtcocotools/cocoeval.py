"""The class of evaluations, with the fork's further arguments."""

from pycocotools import cocoeval


class COCOeval(cocoeval.COCOeval):
    """An evaluation with a scale for each point."""

    def __init__(self, annotations, results, kind="keypoints", sigmas=None, use_area=True):
        super().__init__(annotations, results, kind)
        assert use_area, "a person has an area in this data"
        self.params.kpt_oks_sigmas = sigmas
