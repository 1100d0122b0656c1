"""How a model is laid over GPUs."""

from __future__ import annotations

from infer_doctor.frozen import frozen


@frozen
class Layout:
    """Tensor and pipeline parallelism. `data` counts only where it cuts the experts."""

    tensor: int = 1
    stages: int = 1
    data: int = 1
    layers: int = 1
    kv_heads: int = 1
    tied: bool = False
    replicas: int = 1
    """Engines side by side (data parallelism), each with its own KV cache."""
    partition: tuple[int, ...] = ()

    @property
    def gpus(self) -> int:
        return self.tensor * self.stages * self.replicas

    def layers_of(self, stage: int) -> tuple[int, int]:
        """First layer and the one after the last of a stage.

        distributed/utils.py:126 of vLLM: the remainder goes to the stages before the last, from
        the second-last backwards.
        """
        counts = list(self.partition) or [self.layers // self.stages] * self.stages
        if not self.partition:
            for extra in range(self.layers % self.stages):
                counts[-(extra + 2)] += 1
        first = sum(counts[:stage])
        return first, first + counts[stage]
