"""What NVIDIA's driver calls the GPUs that catalogues of clouds call by shorter names: exact pairs, nothing derived.

Used where a catalogue is imported, to write aliases into the file, where they can be read and changed.
"""

from __future__ import annotations

KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "A100": ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
    "A100-80GB": ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"),
    "A4000": ("NVIDIA RTX A4000",),
    "A5000": ("NVIDIA RTX A5000",),
    "A6000": ("NVIDIA RTX A6000",),
    "H100": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"),
    "K80": ("Tesla K80",),
    "M60": ("Tesla M60",),
    "P100": ("Tesla P100-PCIE-16GB", "Tesla P100-SXM2-16GB"),
    "P4": ("Tesla P4",),
    "RTX3090": ("NVIDIA GeForce RTX 3090",),
    "RTX4090": ("NVIDIA GeForce RTX 4090",),
    "RTX5090": ("NVIDIA GeForce RTX 5090",),
    "RTX6000-Ada": ("NVIDIA RTX 6000 Ada Generation",),
    "T4": ("Tesla T4",),
    "V100": ("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB"),
    "V100-32GB": ("Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB"),
}
"""Name in a catalogue -> names in nvidia-smi."""
