import torch
from torch import nn
import torch.nn.functional as F


class 多头自注意力(nn.Module):
    # 输入维度 dim_in，输出维度 dim_out 可以不一样
    def __init__(self, dim_in, dim_out, num_heads=8):
        super().__init__()
        assert dim_out % num_heads == 0, "dim_out 必须能被 num_heads 整除"
        self.num_heads = num_heads
        self.linear_q = nn.Linear(dim_in, dim_out, bias=False)
        self.linear_k = nn.Linear(dim_in, dim_out, bias=False)
        self.linear_v = nn.Linear(dim_in, dim_out, bias=False)
        self.缩放 = (dim_out // num_heads) ** -0.5

    def forward(self, 输入):
        批量, 长度, _ = 输入.shape
        头 = self.num_heads
        查询 = self.linear_q(输入).reshape(批量, 长度, 头, -1).transpose(1, 2)  # 多头
        键 = self.linear_k(输入).reshape(批量, 长度, 头, -1).transpose(1, 2)
        值 = self.linear_v(输入).reshape(批量, 长度, 头, -1).transpose(1, 2)
        分数 = torch.matmul(查询, 键.transpose(2, 3)) * self.缩放
        权重 = F.softmax(分数, dim=-1)
        输出 = torch.matmul(权重, 值)
        return 输出.transpose(1, 2).reshape(批量, 长度, -1)
