"""Factories that the tests export from, as a user writes them."""

from __future__ import annotations

import torch


def small_net(width: int = 8) -> torch.nn.Module:
    """Input [N, 3, H, W], output [N, 10]."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 3, padding=1),
        torch.nn.BatchNorm2d(width),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(width, 10),
    )
