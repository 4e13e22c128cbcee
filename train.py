"""Train or validate an image classifier.

    python train.py                                  the quickstart: a small model on handwritten digits
    python train.py model=vmamba2_tiny data=imagefolder data.root=photos trainer=cuda optimizer.lr=1e-3
    python train.py experiment=vmamba2_tiny_imagenet data.root=imagenet
    python train.py resume=auto                      continue the newest run with this model and data
    python train.py task=validate ckpt_path=runs/.../checkpoints/best.ckpt
    python train.py -m optimizer.lr=1e-3,3e-3        a sweep
    python train.py --cfg job --resolve              show the whole configuration

Groups and keys are in configs/. Mistakes are all named before anything starts, exit code 2.
"""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from vmamba2.training.build import build_data, build_module, build_trainer
from vmamba2.training.config.command_line import checked_arguments
from vmamba2.training.run import fit, reported_errors, start_run, validate

CONFIGS = Path(__file__).resolve().parent / "configs"


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def main(config: DictConfig) -> float | None:
    """Build the parts of one run and run its task; returns the score that sweeps compare."""
    with reported_errors():
        run_dir = start_run(config)
        data = build_data(config)
        module = build_module(config)
        trainer = build_trainer(config)
        task = validate if config.task == "validate" else fit
        return task(config, run_dir, trainer, module, data)


if __name__ == "__main__":
    sys.argv[1:] = checked_arguments(sys.argv[1:], CONFIGS)
    main()
