"""Names to classes, letter by letter, by a recurrent network written out: sequences of any length, one at a time."""
import json
import random
import string

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

allowed_characters = string.ascii_lowercase
n_letters = len(allowed_characters)
names = open("tests/data/names.txt").read().split()
categories = ["vowel", "consonant"]


def letterToIndex(letter):
    return allowed_characters.find(letter)


def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][letterToIndex(letter)] = 1
    return tensor


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        hidden = F.tanh(self.i2h(input) + self.h2h(hidden))
        output = self.h2o(hidden)
        output = self.softmax(output)
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.rnn = nn.RNN(input_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, line_tensor):
        rnn_out, hidden = self.rnn(line_tensor)
        output = self.h2o(hidden[0])
        return self.softmax(output)


rng = np.random.default_rng(2)
random.seed(4)


def draw(model):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.2))
    return model


def randomTrainingExample():
    line = random.choice(names)
    category = categories[line[-1] not in "aeiouy"]
    category_tensor = torch.tensor([categories.index(category)], dtype=torch.long)
    return category, line, category_tensor, lineToTensor(line)


rnn = draw(RNN(n_letters, 24, len(categories)))
criterion = nn.NLLLoss()
learning_rate = 0.05
losses = []


def train(category_tensor, line_tensor):
    hidden = rnn.initHidden()
    rnn.zero_grad()
    for i in range(line_tensor.size()[0]):
        output, hidden = rnn(line_tensor[i], hidden)
    loss = criterion(output, category_tensor)
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item()


def categoryFromOutput(output):
    top_n, top_i = output.topk(1)
    category_i = top_i[0].item()
    return categories[category_i], category_i


correct = 0
for iter in range(1, 101):
    category, line, category_tensor, line_tensor = randomTrainingExample()
    output, loss = train(category_tensor, line_tensor)
    losses.append(loss)
    guess, guess_i = categoryFromOutput(output)
    correct += guess == category
    if iter % 25 == 0:
        print(iter, f"{loss:.4f}", line, guess)
losses.append(correct)

# The same by nn.RNN, a batch as a list whose losses are summed.
model = draw(CharRNN(n_letters, 16, len(categories)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    model.zero_grad()
    batch_loss = 0
    for _ in range(2):
        category, line, category_tensor, line_tensor = randomTrainingExample()
        output = model.forward(line_tensor)
        loss = criterion(output, category_tensor)
        batch_loss += loss
    batch_loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 3)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(batch_loss.item() / 2)
print(json.dumps(losses))
