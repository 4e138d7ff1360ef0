import torch.nn as nn


class EncoderBlock(nn.Module):
    def __init__(self, d_model=512, nhead=8, dim_feedforward=2048, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=True)
        self.ff = nn.Sequential(
            nn.Linear(d_model, dim_feedforward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(dim_feedforward, d_model),
        )
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, src, src_key_padding_mask=None):
        h = self.norm1(src)
        a, w = self.self_attn(h, h, h, key_padding_mask=src_key_padding_mask, average_attn_weights=False)
        src = src + a
        src = src + self.ff(self.norm2(src))
        return src, w
