"""How sizes are handed over in one object: keys with and without a default, parts inside of parts, `**kwargs`."""

from torch import nn


class SelfAttention(nn.Module):
    """Scores of its own queries and keys, mixed over its own values; subclasses say how its sizes come."""

    def build(self, width, heads):
        """The layers, for a width and a number of heads."""
        assert width % heads == 0
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        """x (B, L, width) -> (B, L, width)."""
        B, L, E = x.shape
        q, k, v = self.qkv(x).view(B, L, 3, self.heads, E // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, L, E))


class Defaults(SelfAttention):
    """Every size has a default where it is read."""

    def __init__(self, config):
        super().__init__()
        self.build(config.get("dim", 64), config.get("num_heads", 4))
        self.name = config.get("name", "attention")


class Mixed(SelfAttention):
    """One size by its key, another by `get`."""

    def __init__(self, hparams):
        super().__init__()
        self.build(hparams["dim"], hparams.get("num_heads"))


class Renamed(SelfAttention):
    """Sizes are read under a shorter name."""

    def __init__(self, config):
        super().__init__()
        c = config
        self.build(c["dim"], c["num_heads"])


class Parts(SelfAttention):
    """Sizes in parts of a config, beside one that lies in the config itself."""

    def __init__(self, config):
        super().__init__()
        self.build(config.model.dim, config.model.attention.num_heads)
        self.act = config.activation.lower() if config.use_activation else None


class Keys(SelfAttention):
    """Sizes by keys of a dictionary in a dictionary."""

    def __init__(self, config):
        super().__init__()
        self.build(config["model"]["dim"], config["model"]["num_heads"])


class Twice(SelfAttention):
    """One size in two parts, one of which is a dictionary."""

    def __init__(self, config):
        super().__init__()
        assert config.encoder.dim == config.decoder.get("dim", 64)
        self.build(config.encoder.dim, config.decoder["num_heads"])


class Keywords(SelfAttention):
    """Sizes by keys of `**kwargs`."""

    def __init__(self, **kwargs):
        super().__init__()
        self.build(kwargs["dim"], kwargs.get("num_heads", 4))
