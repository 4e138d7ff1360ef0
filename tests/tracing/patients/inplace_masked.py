import torch
import torch.nn as nn

class mha(nn.Module):
  def __init__(self, model_dim, n_head):
    super().__init__()
    self.n_head = n_head
    self.hd = model_dim // n_head
    self.Wq = nn.Linear(model_dim, model_dim)
    self.Wk = nn.Linear(model_dim, model_dim)
    self.Wv = nn.Linear(model_dim, model_dim)
    self.Wo = nn.Linear(model_dim, model_dim)

  def forward(self, q, k, v, pad=None):
    bs = q.shape[0]
    Q = self.Wq(q).view(bs, -1, self.n_head, self.hd)
    K = self.Wk(k).view(bs, -1, self.n_head, self.hd)
    V = self.Wv(v).view(bs, -1, self.n_head, self.hd)
    Q, K, V = Q.permute(0,2,1,3), K.permute(0,2,1,3), V.permute(0,2,1,3)
    s = torch.matmul(Q, K.permute(0,1,3,2))
    s /= self.hd ** 0.5
    if pad is not None:
      m = pad[:, None, None, :].expand_as(s)
      s[m] = float('-inf')
    s -= s.max(dim=-1, keepdim=True).values
    e = s.exp_()
    a = e / e.sum(-1, keepdim=True)
    o = torch.matmul(a, V).permute(0,2,1,3).contiguous()
    o = o.view(bs, -1, self.n_head*self.hd)
    return self.Wo(o)
