"""The programs: training steps of models with random weights and data, and computations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu import Gpu, Work


class Training:
    """A training step: loss of a model on fixed data, gradients, SGD."""

    def __init__(self, gpu: Gpu, model: Any, loss: Callable[[Any], Any]) -> None:
        self.gpu, self.model, self.loss = gpu, model.to(gpu.place).train(), loss
        self.optimizer = gpu.torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, model: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(model)
        loss.backward()
        self.optimizer.step()
        return loss

    def eager(self) -> Work:
        return lambda: self.step(self.model)

    def compiled(self) -> Work:
        model = self.gpu.torch.compile(self.model)
        return lambda: self.step(model)

    def gradients(self, start: Any) -> list[Any]:
        """Those of a step from the weights `start`."""
        self.model.load_state_dict(start)
        self.model.zero_grad(set_to_none=True)
        self.loss(self.model).backward()
        return [p.grad.clone() for p in self.model.parameters() if p.grad is not None]


class Computation:
    """A function of tensors, without gradients."""

    def __init__(self, gpu: Gpu, function: Callable[..., Any], *tensors: Any) -> None:
        self.gpu, self.function, self.tensors = gpu, function, tensors

    def eager(self) -> Work:
        return lambda: self.function(*self.tensors)

    def compiled(self) -> Work:
        function = self.gpu.torch.compile(self.function)
        return lambda: function(*self.tensors)

    def exact(self) -> Any:
        return self.function(*(x.double() for x in self.tensors))


# The functions below make a program on one part in `share` of its batch.


def gpt2(gpu: Gpu, share: int = 1) -> Training:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    tokens = gpu.torch.randint(config.vocab_size, (8 // share, 1024), device=gpu.place)
    return Training(gpu, GPT2LMHeadModel(config), lambda m: m(tokens, labels=tokens).loss)


def vit(gpu: Gpu, share: int = 1) -> Training:
    from torchvision.models import vit_b_16

    torch = gpu.torch
    images = torch.randn(64 // share, 3, 224, 224, device=gpu.place)
    labels = torch.randint(1000, (64 // share,), device=gpu.place)
    return Training(gpu, vit_b_16(), lambda m: torch.nn.functional.cross_entropy(m(images), labels))


def encoder(gpu: Gpu, share: int = 1) -> Training:
    nn = gpu.torch.nn
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    x = gpu.torch.randn(16 // share, 512, 1024, device=gpu.place)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return Training(gpu, model, lambda m: m(x).square().mean())


def mlp(gpu: Gpu, share: int = 1) -> Training:
    nn = gpu.torch.nn
    layers = [layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    x = gpu.torch.randn(4096 // share, 2048, device=gpu.place)
    return Training(gpu, nn.Sequential(*layers), lambda m: m(x).square().mean())


def newton_schulz(gpu: Gpu) -> Computation:
    def orthogonal(x: Any) -> Any:
        x = x / x.norm()
        for _ in range(5):
            square = x @ x.mT
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x

    return Computation(gpu, orthogonal, gpu.torch.randn(4096, 4096, device=gpu.place))


def matrix_exp(gpu: Gpu) -> Computation:
    torch = gpu.torch
    return Computation(gpu, torch.linalg.matrix_exp, torch.randn(2048, 2048, device=gpu.place) / 64)


def cdist(gpu: Gpu) -> Computation:
    torch = gpu.torch

    def nearest(x: Any, y: Any) -> Any:
        return torch.cdist(x, y).topk(8, largest=False).values

    return Computation(gpu, nearest, *(torch.randn(20_000, 256, device=gpu.place) for _ in "xy"))


def gaussian_process(gpu: Gpu) -> Training:
    import gpytorch

    torch = gpu.torch
    x = torch.rand(12_000, 8, device=gpu.place)
    y = torch.sin(6 * x.sum(1)) + 0.1 * torch.randn(12_000, device=gpu.place)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Exact(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    model = Exact()
    likelihood.to(gpu.place)
    log_likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return Training(gpu, model, lambda m: -log_likelihood(m(x), y))


@dataclass(frozen=True)
class Program:
    make: Callable[..., Any]
    compiles: bool = True  # False if there is nothing in it to compile
    has_curve: bool = False  # whether its loss is recorded step by step


PROGRAMS = {
    "GPT-2 124M, training, 8×1024": Program(gpt2, has_curve=True),
    "ViT-B/16, training, 64 images": Program(vit, has_curve=True),
    "Transformer encoder 6×1024, training, 16×512": Program(encoder, has_curve=True),
    "MLP 8×2048, training, batch 4096": Program(mlp, has_curve=True),
    "Newton–Schulz, 4096, five steps": Program(newton_schulz),
    "matrix_exp, 2048": Program(matrix_exp, compiles=False),
    "gpytorch exact GP, 12,000 points, training": Program(gaussian_process, compiles=False),
    "cdist 20,000² × 256 and top-k": Program(cdist),
}
