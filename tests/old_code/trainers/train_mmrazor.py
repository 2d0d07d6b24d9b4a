"""Call mmrazor's training function for a search, because mmrazor's wheel has no tools."""

import argparse
import os
import time

import mmcv
from mmcls.datasets import build_dataset
from mmrazor.apis import set_random_seed, train_mmcls_model
from mmrazor.datasets.utils import split_dataset
from mmrazor.models import build_algorithm

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("--work-dir")
parser.add_argument("--resume-from")
parser.add_argument("--seed", type=int)
parser.add_argument("--deterministic", action="store_true")
args = parser.parse_args()

config = mmcv.Config.fromfile(args.config)
config.work_dir, config.resume_from, config.seed = args.work_dir, args.resume_from, args.seed
config.gpu_ids = [0]
os.makedirs(args.work_dir, exist_ok=True)
set_random_seed(args.seed, deterministic=args.deterministic)
model = build_algorithm(config.algorithm)
model.init_weights()
train_mmcls_model(
    model,
    [split_dataset(build_dataset(config.data.train))],
    config,
    validate=True,
    timestamp=time.strftime("%Y%m%d_%H%M%S"),
    device="cpu",
    meta={"seed": args.seed, "exp_name": os.path.basename(args.config)},
)
