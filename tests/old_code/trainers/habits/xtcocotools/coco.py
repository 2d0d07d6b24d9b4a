"""The class of annotations."""

from pycocotools.coco import COCO as COCO
