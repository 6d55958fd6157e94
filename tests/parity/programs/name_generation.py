"""Names letter by letter: the loss of every letter is added up; then samples from the model, greedily."""
import json
import string

import numpy as np
import torch
import torch.nn as nn

letters = string.ascii_lowercase
n_letters = len(letters) + 1
names = open("tests/data/names.txt").read().split()
rng = np.random.default_rng(6)


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(2 + input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(2 + input_size + hidden_size, output_size)
        self.o2o = nn.Linear(hidden_size + output_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, category, input, hidden):
        input_combined = torch.cat((category, input, hidden), 1)
        hidden = self.i2h(input_combined)
        output = self.i2o(input_combined)
        output_combined = torch.cat((hidden, output), 1)
        output = self.o2o(output_combined)
        output = self.softmax(output)
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


def categoryTensor(category):
    tensor = torch.zeros(1, 2)
    tensor[0][category] = 1
    return tensor


def inputTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li in range(len(line)):
        tensor[li][0][letters.find(line[li])] = 1
    return tensor


def targetTensor(line):
    letter_indexes = [letters.find(line[li]) for li in range(1, len(line))]
    letter_indexes.append(n_letters - 1)
    return torch.LongTensor(letter_indexes)


rnn = RNN(n_letters, 20, n_letters)
with torch.no_grad():
    for p in rnn.parameters():
        p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.15))
criterion = nn.NLLLoss()
learning_rate = 0.01
losses = []


def train(category_tensor, input_line_tensor, target_line_tensor):
    target_line_tensor.unsqueeze_(-1)
    hidden = rnn.initHidden()
    rnn.zero_grad()
    loss = torch.Tensor([0])
    for i in range(input_line_tensor.size(0)):
        output, hidden = rnn(category_tensor, input_line_tensor[i], hidden)
        l = criterion(output, target_line_tensor[i])
        loss += l
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item() / input_line_tensor.size(0)


for iter in range(100):
    line = names[rng.integers(len(names))]
    category = int(line[-1] == "a")
    output, loss = train(categoryTensor(category), inputTensor(line), targetTensor(line))
    losses.append(loss)

max_length = 10


def sample(category, start_letter="a"):
    with torch.no_grad():
        category_tensor = categoryTensor(category)
        input = inputTensor(start_letter)
        hidden = rnn.initHidden()
        output_name = start_letter
        for i in range(max_length):
            output, hidden = rnn(category_tensor, input[0], hidden)
            topv, topi = output.topk(1)
            topi = topi[0][0]
            if topi == n_letters - 1:
                break
            letter = letters[topi]
            output_name += letter
            input = inputTensor(letter)
        return output_name


for start in "abc":
    name = sample(1, start)
    print(name)
    losses.append(len(name))
print(json.dumps(losses))
