"""Loops of steps with an event storage: shared by detectron2, cvpods and Pet."""
