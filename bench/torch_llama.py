"""A Llama in plain PyTorch, independent of HSPMD: the peer of benches and the oracle of tests. Names as Hugging Face's."""
import math

import torch
import torch.nn.functional as F


def rotary(positions, head_dim, theta, dtype):
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = positions.to(torch.float64)[:, None] * frequencies[None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, cos, sin):  # x [batch, heads, sequence, head_dim]
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        width = c["head_dim"]
        self.q_proj = torch.nn.Linear(c["hidden"], c["heads"] * width, bias=False)
        self.k_proj = torch.nn.Linear(c["hidden"], c["kv_heads"] * width, bias=False)
        self.v_proj = torch.nn.Linear(c["hidden"], c["kv_heads"] * width, bias=False)
        self.o_proj = torch.nn.Linear(c["heads"] * width, c["hidden"], bias=False)

    def forward(self, x, cos, sin, mask):
        c = self.c
        b, s, _ = x.shape
        split = lambda y, heads: y.view(b, s, heads, c["head_dim"]).transpose(1, 2)
        q = rotate(split(self.q_proj(x), c["heads"]), cos, sin)
        k = rotate(split(self.k_proj(x), c["kv_heads"]), cos, sin)
        v = split(self.v_proj(x), c["kv_heads"])
        group = c["heads"] // c["kv_heads"]
        if group > 1:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.matmul(q, k.transpose(2, 3)) * (1 / math.sqrt(c["head_dim"])) + mask
        context = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.o_proj(context.transpose(1, 2).reshape(b, s, -1))


class Norm(torch.nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Mlp(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = torch.nn.Linear(c["hidden"], c["ffn"], bias=False)
        self.up_proj = torch.nn.Linear(c["hidden"], c["ffn"], bias=False)
        self.down_proj = torch.nn.Linear(c["ffn"], c["hidden"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden"], c["eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden"], c["eps"])
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(c["vocabulary"], c["hidden"])
        self.layers = torch.nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = Norm(c["hidden"], c["eps"])


class Llama(torch.nn.Module):
    """Gives the sum of the cross entropy over all targets."""

    def __init__(self, c, sequence_length, dtype=torch.float32):
        super().__init__()
        self.model = Decoder(c)
        self.lm_head = torch.nn.Linear(c["hidden"], c["vocabulary"], bias=False)
        self.to(dtype)
        cos, sin = rotary(torch.arange(sequence_length), c["head_dim"], c["theta"], dtype)
        mask = torch.full((sequence_length, sequence_length), float("-inf"), dtype=dtype).triu(1)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("mask", mask)

    def forward(self, ids, targets):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        logits = self.lm_head(self.model.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), reduction="sum")
