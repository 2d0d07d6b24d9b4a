"""The trainer of steps and its event storage, which detectron2, cvpods and Pet share."""
