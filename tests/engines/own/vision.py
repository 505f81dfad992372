"""Lets torchvision be imported beside a torch without CUDA.  Import it before transformers or an engine.

Its wheel is linked with CUDA, so that its kernels cannot be loaded; its own code wants two of them to be declared.
"""
import torch

DECLARED = torch.library.Library("torchvision", "FRAGMENT")     # undone when the object goes
if torch.version.cuda is None:
    for kernel in ("nms", "qnms"):
        DECLARED.define(f"{kernel}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
