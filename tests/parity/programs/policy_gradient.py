"""REINFORCE as in PyTorch's examples: a policy for a small drawn world, log probabilities that wait for the episode's end."""
import json
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

rng = np.random.default_rng(5)


class Corridor:
    """The agent stands on a line and is to stay near its middle; what it does may slip."""

    def reset(self):
        self.place, self.time = rng.integers(-2, 3), 0
        return self.state()

    def state(self):
        return np.array([self.place / 3, self.time / 10, 1.0], dtype=np.float32)

    def step(self, action):
        self.place += (2 * action - 1) if rng.random() < 0.9 else rng.integers(-1, 2)
        self.time += 1
        done = abs(self.place) > 3 or self.time == 12
        return self.state(), 1.0 - abs(self.place) / 3, done


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(3, 16)
        self.dropout = nn.Dropout(p=0.0)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = self.affine1(x)
        x = self.dropout(x)
        x = F.relu(x)
        action_scores = self.affine2(x)
        return F.softmax(action_scores, dim=1)


env = Corridor()
policy = Policy()
with torch.no_grad():
    for p in policy.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.5))
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()
losses = []


def select_action(state):
    state = torch.from_numpy(state).float().unsqueeze(0)
    probs = policy(state)
    m = Categorical(probs)
    action = torch.tensor([int(rng.random() > probs[0, 0].item())])
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    losses.append(policy_loss.item())
    del policy.rewards[:]
    del policy.saved_log_probs[:]


running_reward = 0
for i_episode in range(60):
    state, ep_reward = env.reset(), 0
    for t in range(2):
        env.step(1)
    for t in range(1, 100):
        action = select_action(state)
        state, reward, done = env.step(action)
        policy.rewards.append(reward)
        ep_reward += reward
        if done:
            break
    running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
    if len(policy.rewards) > 1:
        finish_episode()
    if i_episode % 20 == 0:
        print("Episode {}\tLast reward: {:.2f}\tAverage reward: {:.2f}".format(i_episode, ep_reward, running_reward))
print(json.dumps(losses))
