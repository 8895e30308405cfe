"""Two optimizers, a gradient penalty by double backward, retained graphs and tensor hooks."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(True), nn.Linear(8, 2))
critic = nn.Sequential(
    nn.utils.spectral_norm(nn.Linear(2, 8)), nn.LeakyReLU(0.2, True), nn.Linear(8, 1)
)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
for step in range(5):
    real, fake = torch.randn(6, 2), generator(torch.randn(6, 4))
    mixed = (real + fake.detach()).div(2).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = (gradient.norm(dim=1) - 1).square().mean()
    critic_loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
    of_critic.zero_grad()
    critic_loss.backward(retain_graph=True)
    of_critic.step()
    if step % 2:
        fake.register_hook(lambda grad: grad * 2)
        loss = -critic(fake).mean()
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
    print(step, critic_loss.item(), penalty.item())
