import argparse, copy, os, os.path as osp, sys, time, json, warnings

sys.path.insert(0, osp.dirname(osp.abspath(__file__)))
import mmcv, torch
from mmcv import Config, DictAction
from mmcv.parallel import MMDataParallel, MMDistributedDataParallel
from mmcv.runner import (
    build_optimizer,
    build_runner,
    get_dist_info,
    init_dist,
    set_random_seed,
    EvalHook,
    DistEvalHook,
    OptimizerHook,
    Fp16OptimizerHook,
    DistSamplerSeedHook,
)
from mmcv.utils import get_git_hash, collect_env, get_logger
from torch.utils.data import DataLoader, DistributedSampler


def main():
    p = argparse.ArgumentParser()
    p.add_argument("work_dir")
    p.add_argument("config")
    p.add_argument("--resume-from")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--cfg-options", nargs="+", action=DictAction)
    p.add_argument("--launcher", choices=["none", "pytorch"], default="none")
    p.add_argument("--local_rank", type=int, default=0)
    a = p.parse_args()
    cfg = Config.fromfile(osp.join(osp.dirname(osp.abspath(__file__)), "configs", a.config))
    if a.cfg_options is not None:
        cfg.merge_from_dict(a.cfg_options)
    from plugins.models import build_model, Data

    if a.work_dir is not None:
        cfg.work_dir = a.work_dir
    elif cfg.get("work_dir", None) is None:
        cfg.work_dir = osp.join("./work_dirs", osp.splitext(osp.basename(a.config))[0])
    if a.resume_from:
        cfg.resume_from = a.resume_from
    torch.set_num_threads(1)
    distributed = a.launcher != "none"
    if distributed:
        torch.distributed.init_process_group(**{"backend": cfg.dist_params.backend})
    mmcv.mkdir_or_exist(osp.abspath(cfg.work_dir))
    if get_dist_info()[0] == 0:
        cfg.dump(osp.join(cfg.work_dir, osp.basename(a.config)))
    logger = get_logger(
        name="proj",
        log_file=osp.join(cfg.work_dir, f"run{'_r' if cfg.resume_from else ''}.log"),
        log_level=cfg.log_level,
    )
    logger.info(
        f"Distributed training: {distributed} {cfg.name} {osp.basename(cfg.here)} {cfg.get('base_lr')}"
    )
    set_random_seed(a.seed, deterministic=False)
    meta = dict(seed=a.seed, exp_name=osp.basename(a.config), CLASSES=Data.CLASSES)
    model = build_model(cfg.model)
    model.init_weights()
    model = (
        MMDistributedDataParallel(model, broadcast_buffers=False, find_unused_parameters=True)
        if distributed
        else MMDataParallel(model, device_ids=[])
    )
    optimizer = build_optimizer(model, cfg.optimizer)
    runner = build_runner(
        cfg.runner,
        default_args=dict(
            model=model, optimizer=optimizer, work_dir=cfg.work_dir, logger=logger, meta=meta
        ),
    )
    runner.timestamp = "stamp" + ("_r" if cfg.resume_from else "")
    oc = (
        OptimizerHook(**cfg.optimizer_config)
        if distributed and "type" not in cfg.optimizer_config
        else cfg.optimizer_config
    )
    runner.register_training_hooks(
        cfg.lr_config,
        oc,
        cfg.checkpoint_config,
        cfg.log_config,
        cfg.get("momentum_config", None),
        custom_hooks_config=cfg.get("custom_hooks", None),
    )
    if distributed and "Epoch" in cfg.runner.type:
        runner.register_hook(DistSamplerSeedHook())

    def loader(n, seed, shuffle):
        d = Data(n, seed)
        s = DistributedSampler(d, shuffle=shuffle) if distributed else None
        return DataLoader(d, batch_size=cfg.data.batch, shuffle=shuffle and s is None, sampler=s)

    if cfg.get("evaluation"):
        e = dict(cfg.evaluation)
        e.setdefault("by_epoch", cfg.runner["type"] != "IterBasedRunner")
        from plugins.hooks import TTAEval

        runner.register_hook(TTAEval(DataLoader(Data(12, 9), batch_size=4), **e), priority="LOW")
    if cfg.resume_from:
        runner.resume(cfg.resume_from, map_location="cpu")
    elif cfg.load_from:
        runner.load_checkpoint(cfg.load_from)
    runner.run(
        [loader(cfg.data.samples, 0, True), loader(8, 1, False)][: len(cfg.workflow)], cfg.workflow
    )


if __name__ == "__main__":
    main()
