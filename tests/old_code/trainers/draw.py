"""Draw tiny datasets for real packages from a seed: pictures, masks, boxes, frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

__all__ = ["DATA"]

TRAIN, VAL = 8, 4
"""Pictures to train on, and to evaluate."""


def picture(random: Any, height: int = 32, width: int = 32, shade: int = 0) -> Any:
    """Return noise with a bright square, lighter by class."""
    image = random.randint(0, 128, (height, width, 3)).astype(np.uint8)
    top, left = random.randint(0, height // 2), random.randint(0, width // 2)
    image[top : top + height // 2, left : left + width // 2] += np.uint8(30 + 60 * (shade % 2))
    return image


def write(path: Path, image: Any) -> None:
    """Write a picture; create missing parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image)


def listed(path: Path, lines: list[str]) -> None:
    """Write lines to a file; create missing parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def classes(root: Path) -> None:
    """Draw pictures of two classes and lists of the files."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("val", VAL)):
        lines = []
        for i in range(count):
            name = f"{'ab'[i % 2]}/{i}.png"
            write(root / part / name, picture(random, shade=i))
            lines.append(f"{name} {i % 2}")
        listed(root / f"{part}.txt", lines)


def masks(root: Path) -> None:
    """Draw pictures and segmentation masks."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("val", VAL)):
        for i in range(count):
            image = picture(random, 64, 64, i)
            write(root / "images" / part / f"{i}.png", image)
            write(root / "masks" / part / f"{i}.png", (image[..., 0] > 90).astype(np.uint8))


def people(random: Any, left: int, top: int) -> list[int]:
    """Return 17 points of a person, all visible."""
    points = random.randint(0, 24, (17, 2))
    return [int(value) for x, y in points for value in (x + left, y + top, 2)]


def coco(root: Path) -> None:
    """Draw pictures with boxes of two classes, and 17 points in each, in COCO's JSON."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("val", VAL)):
        images, boxes = [], []
        for i in range(count):
            image = random.randint(0, 60, (64, 64, 3)).astype(np.uint8)
            for j in range(2):
                left, top = (int(value) for value in random.randint(0, 32, 2))
                image[top : top + 24, left : left + 24] = 120 + 100 * j
                boxes.append(
                    {
                        "id": len(boxes) + 1,
                        "image_id": i,
                        "category_id": j + 1,
                        "bbox": [left, top, 24, 24],
                        "area": 576,
                        "iscrowd": 0,
                        "segmentation": [[left, top, left + 24, top, left + 24, top + 24]],
                        "keypoints": people(random, left, top),
                        "num_keypoints": 17,
                    }
                )
            write(root / part / f"{i}.png", image)
            images.append({"id": i, "file_name": f"{i}.png", "height": 64, "width": 64})
        kinds = [{"id": 1, "name": "person"}, {"id": 2, "name": "cat"}]
        text = json.dumps({"images": images, "annotations": boxes, "categories": kinds})
        listed(root / f"{part}.json", [text])


def pairs(root: Path) -> None:
    """Draw paired pictures, and large pictures with small copies."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("test", VAL)):
        for i in range(count):
            write(root / "paired" / part / f"{i}.png", picture(random, 32, 64, i))
            large = picture(random, 128, 128, i)
            write(root / "large" / part / f"{i}.png", large)
            write(root / "small" / part / f"{i}.png", large[::4, ::4])
        lines = [f"{i}.png (128,128,3)" for i in range(count)]
        listed(root / f"{part}.txt", lines)


def frames(root: Path) -> None:
    """Draw the frames of short films of two classes."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("val", VAL)):
        lines = []
        for i in range(count):
            for frame in range(6):
                write(root / part / str(i) / f"img_{frame + 1:05}.png", picture(random, shade=i))
            lines.append(f"{i} 6 {i % 2}")
        listed(root / f"{part}.txt", lines)


def flows(root: Path) -> None:
    """Draw two pictures and the flow between the pictures, in the format of Flying Chairs."""
    random = np.random.RandomState(0)
    for i in range(1, TRAIN + VAL + 1):
        image = picture(random, 64, 64, i)
        for j in (1, 2):
            write(root / "data" / f"{i:05}_img{j}.ppm", np.roll(image, j, 1))
        with (root / "data" / f"{i:05}_flow.flo").open("wb") as file:
            file.write(b"PIEH" + np.array([64, 64], np.int32).tobytes())
            file.write(random.rand(64, 64, 2).astype(np.float32).tobytes())
    listed(root / "split.txt", ["1"] * TRAIN + ["2"] * VAL)


def words(root: Path) -> None:
    """Draw pictures of words."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("val", VAL)):
        lines = []
        for i in range(count):
            image, word = picture(random, 32, 100), "ab01"[i % 4] * 2
            cv2.putText(image, word, (20, 24), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (255, 255, 255), 2)
            write(root / part / f"{i}.png", image)
            lines.append(f"{i}.png {word}")
        listed(root / f"{part}.txt", lines)


def turned(root: Path) -> None:
    """Draw pictures with rotated boxes, in the format of DOTA."""
    random = np.random.RandomState(0)
    for part, count in (("train", TRAIN), ("val", VAL)):
        for i in range(count):
            image, lines = random.randint(0, 60, (64, 64, 3)).astype(np.uint8), []
            for name, angle in (("plane", 0.0), ("ship", 30.0)):
                middle = tuple(float(value) for value in random.randint(20, 44, 2))
                corners = cv2.boxPoints((middle, (20, 12), angle + 1)).astype(int)
                cv2.fillPoly(image, [corners], (200, 200, 200))
                lines.append(" ".join(str(value) for value in corners.ravel()) + f" {name} 0")
            write(root / part / "images" / f"{i}.png", image)
            listed(root / part / "labels" / f"{i}.txt", lines)


def films(root: Path) -> None:
    """Draw films of a moving box, in COCO's JSON for videos."""
    random = np.random.RandomState(0)
    for part, count in (("train", 2), ("val", 1)):
        videos, images, boxes = [], [], []
        for video in range(1, count + 1):
            videos.append({"id": video, "name": f"v{video}", "width": 64, "height": 64})
            for frame in range(4):
                image = random.randint(0, 60, (64, 64, 3)).astype(np.uint8)
                left, name = 10 + 4 * frame, f"v{video}/{frame}.png"
                image[20:44, left : left + 24] = 220
                write(root / part / name, image)
                number = {"id": len(images) + 1, "video_id": video}
                box = {"bbox": [left, 20, 24, 24], "area": 576, "category_id": 1}
                seen = {"iscrowd": 0, "occluded": False, "generated": False}
                boxes.append(
                    {**number, "image_id": number["id"], "instance_id": video, **box, **seen}
                )
                size = {"height": 64, "width": 64, "is_vid_train_frame": part == "train"}
                images.append({**number, "frame_id": frame, "file_name": name, **size})
        kinds = [{"id": 1, "name": "airplane"}]
        content = {"videos": videos, "images": images, "annotations": boxes, "categories": kinds}
        listed(root / f"{part}.json", [json.dumps(content)])


DATA: dict[str, Callable[[Path], None]] = {
    drawing.__name__: drawing
    for drawing in (classes, masks, coco, pairs, frames, flows, words, turned, films)
}
"""The functions that draw a dataset into a folder, by name."""
