"""Faults of windows: how an image or a sequence is cut, rolled and put together again."""

from headwise.diagnosis.faults.fault import FAULT, Fault, Template, Words
from headwise.diagnosis.faults.templates import IMPORTS

__all__ = ["FAULTS"]

BUILT = f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads, window_size=4):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.window_size = n_heads, window_size
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
"""
# windows of an image
WINDOWS = Template(
    "WINDOWS",
    f"""{BUILT}
    def forward(self, x):
        # x: (batch, height, width, d_model), both sides multiples of the window
        B, H, W, C = x.shape
        s = self.window_size
        windows = x.view(B, H // s, s, W // s, s, C).transpose(2, 3).reshape(-1, s * s, C)
        q, k, v = self.qkv_proj(windows).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.n_heads)
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        context = context.view(B, H // s, W // s, s, s, C)
        return x + self.out_proj(context.transpose(2, 3).reshape(B, H, W, C))
""",
)

# windows of a sequence that was rolled by half of one
ROLLED = Template(
    "ROLLED",
    f"""{BUILT}
    def forward(self, x):
        # x: (batch, length, d_model), the length a multiple of the window
        B, L, C = x.shape
        s, shift = self.window_size, self.window_size // 2
        windows = x.roll(-shift, dims=1).view(B, L // s, s, C)
        q, k, v = self.qkv_proj(windows).unflatten(-1, (3, self.n_heads, -1)).permute(3, 0, 1, 4, 2, 5)
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.n_heads)
        is_rolled = (torch.arange(L, device=x.device) >= L - shift).view(L // s, 1, s)
        apart = is_rolled != is_rolled.transpose(1, 2)
        weights = scores.masked_fill(apart.unsqueeze(1), float("-inf")).softmax(dim=-1)
        context = (weights @ v).transpose(2, 3).reshape(B, L, C)
        return x + self.out_proj(context).roll(shift, dims=1)
""",
)

FAULTS = (
    Fault(
        "windows-misplaced", FAULT, "layout",
        WINDOWS(("context.view(B, H // s, W // s, s, s, C)", "context.view(B, H // s, s, W // s, s, C)")),
        Words(
            "The windows are put back in another order than they were taken in: tokens come to places of others.",
            "What a token gets was made for another one, and the residual adds it to the wrong token.",
            "View the windows as (batch, rows, columns, window, window, channels) before the axes are transposed, undo "
            "the permutation with which they were taken, and roll back by what was rolled.",
        ),
        Words(
            "窗口放回时的次序与取出时不同：token 到了别的 token 的位置上。",
            "一个 token 得到的是为另一个 token 算出的结果，残差加到了错误的 token 上。",
            "转置之前把窗口看作（批，行数，列数，窗口，窗口，通道），用取出时排列的逆排列；移位多少就移回多少。",
        ),
    ),
    Fault(
        "windows-wrapped", FAULT, "layout",
        ROLLED(('scores.masked_fill(apart.unsqueeze(1), float("-inf")).softmax', "scores.softmax")),
        Words(
            "After the roll a window holds tokens of opposite edges, and they attend to each other.",
            "They are neighbours in memory only: a token at one edge takes on what stands at the other.",
            "Hide tokens that the roll brought from the other edge from the rest of their window, before the softmax.",
        ),
        Words(
            "移位之后，一个窗口里有来自相对两边的 token，而它们互相关注。",
            "它们只在内存里相邻：一边的 token 混入了另一边的内容。",
            "在 softmax 之前，让移位带来的另一边的 token 与窗口里其余的 token 互不可见。",
        ),
    ),
)  # fmt: skip
