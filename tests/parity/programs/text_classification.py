"""Texts of different lengths to classes: one long line of words with offsets, EmbeddingBag, a collate function."""
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataset import random_split

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rng = np.random.default_rng(11)
vocab = {word: i for i, word in enumerate("<unk> ball game team win bank stock market price atom cell star light a the of".split())}
topics = {"Sports": list(vocab)[1:5], "Business": list(vocab)[5:9], "Science": list(vocab)[9:13]}
labels = list(topics)


def sentence(label):
    return " ".join(rng.choice(topics[label] + ["a", "the", "of", "other"], rng.integers(3, 12)))


train_iter = [(label, sentence(label)) for label in rng.choice(labels, 200)]


def text_pipeline(x):
    return [vocab.get(word, 0) for word in x.split()]


def label_pipeline(x):
    return labels.index(x)


def collate_batch(batch):
    label_list, text_list, offsets = [], [], [0]
    for _label, _text in batch:
        label_list.append(label_pipeline(_label))
        processed_text = torch.tensor(text_pipeline(_text), dtype=torch.int64)
        text_list.append(processed_text)
        offsets.append(processed_text.size(0))
    label_list = torch.tensor(label_list, dtype=torch.int64)
    offsets = torch.tensor(offsets[:-1]).cumsum(dim=0)
    text_list = torch.cat(text_list)
    return label_list.to(device), text_list.to(device), offsets.to(device)


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super(TextClassificationModel, self).__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)
        self.init_weights()

    def init_weights(self):
        initrange = 0.5
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.fc.weight.data.uniform_(-initrange, initrange)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        embedded = self.embedding(text, offsets)
        return self.fc(embedded)


model = TextClassificationModel(len(vocab), 8, len(labels)).to(device)
for p in model.parameters():
    p.data = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32") * 0.5)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.8)
losses = []


def train(dataloader):
    model.train()
    total_acc, total_count = 0, 0
    for idx, (label, text, offsets) in enumerate(dataloader):
        optimizer.zero_grad()
        predicted_label = model(text, offsets)
        loss = criterion(predicted_label, label)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.item())
        total_acc += (predicted_label.argmax(1) == label).sum().item()
        total_count += label.size(0)
    print("accuracy {:8.3f}".format(total_acc / total_count))


def evaluate(dataloader):
    model.eval()
    total_acc, total_count = 0, 0
    with torch.no_grad():
        for idx, (label, text, offsets) in enumerate(dataloader):
            predicted_label = model(text, offsets)
            total_acc += (predicted_label.argmax(1) == label).sum().item()
            total_count += label.size(0)
    return total_acc / total_count


train_dataloader = DataLoader(train_iter[:160], batch_size=8, shuffle=False, collate_fn=collate_batch)
valid_dataloader = DataLoader(train_iter[160:], batch_size=8, shuffle=False, collate_fn=collate_batch)
for epoch in range(4):
    train(train_dataloader)
    losses.append(evaluate(valid_dataloader))
    scheduler.step()


def predict(text):
    with torch.no_grad():
        text = torch.tensor(text_pipeline(text))
        output = model(text, torch.tensor([0]))
        return output.argmax(1).item()


model = model.to("cpu")
print("This is a %s text" % labels[predict("the price of a stock")])
losses.append(predict("the price of a stock"))
print(json.dumps(losses))
