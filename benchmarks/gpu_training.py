"""A training that fills a CUDA device, for `gpu_check.sh`."""

import argparse
import time

import torch
from torch import nn


def model_of(width: int, layers: int) -> nn.Module:
    blocks = [
        nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.1, batch_first=True)
        for _ in range(layers)
    ]
    return nn.Sequential(*blocks, nn.Linear(width, 16)).cuda()


def step(model, optimizer, scaler, batch, target, *, half: bool, late_clip: bool) -> torch.Tensor:
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16, enabled=half):
        loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), target.flatten())
    scaler.scale(loss).backward()
    if not late_clip:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def graphed(model, optimizer, batch, target) -> torch.Tensor:
    """One update, captured once and replayed three times."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def update() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        return loss

    with torch.cuda.stream(side):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = update()
    for _ in range(3):
        graph.replay()
    return loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["float32", "float16", "graph"], default="float32")
    parser.add_argument("--late-clip", action="store_true", help="the fault: clip before unscale")
    parser.add_argument("--weights", help="where to save the final weights")
    parser.add_argument("--cost", action="store_true", help="a large model; print ms a step")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    width, layers, size, length = (2048, 12, 16, 1024) if options.cost else (256, 2, 8, 64)
    model = model_of(width, layers)
    graph = options.precision == "graph"
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, capturable=graph)
    half = options.precision == "float16" or options.cost
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    batch = torch.randn(size, length, width, device="cuda")
    target = torch.randint(16, (size, length), device="cuda")
    if graph:
        print(graphed(model, optimizer, batch, target).item())
    else:
        seconds = []
        for number in range(13 if options.cost else 5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            clip = options.late_clip and number >= 2
            loss = step(model, optimizer, scaler, batch, target, half=half, late_clip=clip)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            if not options.cost:
                print(loss.item())
        if options.cost:
            print(f"{1000 * sorted(seconds[3:])[len(seconds[3:]) // 2]:.3f}")
    if options.weights:
        with open(options.weights, "wb") as file:
            for parameter in model.parameters():
                file.write(parameter.detach().cpu().contiguous().numpy().tobytes())


if __name__ == "__main__":
    main()
