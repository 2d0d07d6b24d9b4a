"""The training of each project: its ``tools/train.py`` with a config of this folder."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROJECTS", "Project"]


@dataclass(frozen=True)
class Project:
    """A project to train.

    Attributes:
        package: The Python name of the package.
        data: The dataset, a function of ``draw.py``.
        base: The config of the project to inherit from. Empty for a wheel without configs and
            tools, which the script ``train_<package>.py`` of this folder trains.
        train: Additional arguments of ``tools/train.py``.
        test: Arguments of ``tools/test.py`` after config and checkpoint. Empty without this script.
        tested: The option of ``tools/test.py`` for the checkpoint, if not the second argument.
        version: mmcv's version, for projects that refuse 1.7.2.
        last: The last checkpoint of a run, without suffix.
        resumed: The checkpoint to resume from.
        auto: Whether to test ``--auto-resume``.
        carried: Whether both sides load, and resume from, the checkpoint written by real mmcv.
    """

    package: str
    data: str
    base: str
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()
    version: str = "1.7.2"
    last: str = "epoch_2"
    resumed: str = "epoch_1"
    auto: bool = False
    carried: bool = False


ITERATIONS = {"last": "iter_8", "resumed": "iter_4"}

PROJECTS: dict[str, Project] = {
    "mmcls": Project(
        "mmcls",
        "classes",
        "resnet/resnet18_8xb16_cifar10.py",
        train=("--device", "cpu", "--cfg-options", "optimizer.lr=0.02"),
        test=("--device", "cpu", "--metrics", "precision", "--out", "result.pkl"),
    ),
    "mmcls_small": Project(
        "mmcls",
        "classes",
        "resnet/resnet18_8xb16_cifar10.py",
        train=("--device", "cpu"),
        carried=True,
    ),
    "mmcls_t2t": Project(
        "mmcls",
        "classes",
        "t2t_vit/t2t-vit-t-14_8xb64_in1k.py",
        last="epoch_3",
        resumed="epoch_2",
        train=("--device", "cpu"),
        test=("--device", "cpu", "--metrics", "precision", "--out", "result.pkl"),
    ),
    "mmseg": Project(
        "mmseg",
        "masks",
        "fcn/fcn_r18-d8_512x1024_80k_cityscapes.py",
        test=("--eval", "mIoU", "--out", "result.pkl"),
        auto=True,
        **ITERATIONS,
    ),
    "mmdet": Project(
        "mmdet",
        "coco",
        "retinanet/retinanet_r18_fpn_1x_coco.py",
        test=("--eval", "bbox", "--out", "result.pkl"),
        auto=True,
    ),
    "mmdet_faster_rcnn": Project(
        "mmdet",
        "coco",
        "faster_rcnn/faster_rcnn_r50_fpn_1x_coco.py",
        test=("--eval", "bbox", "--out", "result.pkl"),
    ),
    "mmdet_ssdlite": Project(
        "mmdet",
        "coco",
        "ssd/ssdlite_mobilenetv2_scratch_600e_coco.py",
        test=("--eval", "bbox", "--out", "result.pkl"),
    ),
    "mmdet_yolox": Project(
        "mmdet",
        "coco",
        "yolox/yolox_s_8x8_300e_coco.py",
        test=("--eval", "bbox", "--out", "result.pkl"),
        last="epoch_3",
        resumed="epoch_2",
    ),
    "mmselfsup": Project(
        "mmselfsup",
        "classes",
        "selfsup/rotation_pred/rotation-pred_resnet50_8xb16-steplr-70e_in1k.py",
    ),
    "mmselfsup_swav": Project(
        "mmselfsup",
        "classes",
        "selfsup/swav/swav_resnet50_8xb32-mcrop-2-6-coslr-200e_in1k-224-96.py",
    ),
    "mmaction": Project(
        "mmaction",
        "frames",
        "recognition/tsn/tsn_r50_1x1x3_75e_ucf101_rgb.py",
        train=("--validate",),
        test=("--eval", "top_k_accuracy", "--out", "result.pkl"),
        version="1.7.0",
    ),
    "mmaction_slowfast": Project(
        "mmaction",
        "frames",
        "recognition/slowfast/slowfast_r50_4x16x1_256e_kinetics400_rgb.py",
        train=("--validate",),
        test=("--eval", "top_k_accuracy", "--out", "result.pkl"),
        version="1.7.0",
    ),
    "mmedit_pix2pix": Project(
        "mmedit",
        "pairs",
        "synthesizers/pix2pix/pix2pix_vanilla_unet_bn_1x1_80k_facades.py",
        test=("--save-path", "images"),
        **ITERATIONS,
    ),
    "mmedit_srgan": Project(
        "mmedit",
        "pairs",
        "restorers/srresnet_srgan/srgan_x4c64b16_g1_1000k_div2k.py",
        test=("--out", "result.pkl"),
        **ITERATIONS,
    ),
    "mmpose": Project(
        "mmpose",
        "coco",
        "body/2d_kpt_sview_rgb_img/topdown_heatmap/coco/res50_coco_256x192.py",
        test=("--eval", "mAP", "--out", "result.json"),
        version="1.7.0",
    ),
    "mmpose_bottom_up": Project(
        "mmpose",
        "coco",
        "body/2d_kpt_sview_rgb_img/associative_embedding/coco/res50_coco_512x512.py",
        test=("--eval", "mAP", "--out", "result.json"),
        version="1.7.0",
    ),
    "mmflow": Project(
        "mmflow",
        "flows",
        "flownet/flownets_8x1_slong_flyingchairs_384x448.py",
        test=("--eval", "EPE"),
        **ITERATIONS,
    ),
    "mmflow_raft": Project(
        "mmflow",
        "flows",
        "raft/raft_8x2_100k_flyingchairs_368x496.py",
        test=("--eval", "EPE"),
        **ITERATIONS,
    ),
    "mmocr": Project(
        "mmocr",
        "words",
        "textrecog/crnn/crnn_toy_dataset.py",
        test=("--eval", "acc", "--out", "result.pkl"),
    ),
    "mmtrack": Project(
        "mmtrack",
        "films",
        "vid/dff/dff_faster_rcnn_r50_dc5_1x_imagenetvid.py",
        test=("--eval", "bbox", "--out", "result.pkl"),
        tested=("--checkpoint",),
    ),
    "mmrotate": Project(
        "mmrotate",
        "turned",
        "oriented_rcnn/oriented_rcnn_r50_fpn_1x_dota_le90.py",
        test=("--eval", "mAP", "--out", "result.pkl"),
    ),
    "mmgen_dcgan": Project(
        "mmgen",
        "classes",
        "dcgan/dcgan_celeba-cropped_64_b128x1_300k.py",
        **ITERATIONS,
    ),
    "mmgen_ddpm": Project(
        "mmgen",
        "classes",
        "improved_ddpm/ddpm_cosine_hybird_timestep-4k_drop0.3_cifar10_32x32_b8x16_500k.py",
        **ITERATIONS,
    ),
    "mmrazor": Project("mmrazor", "classes", "", version="1.5.0"),
}
