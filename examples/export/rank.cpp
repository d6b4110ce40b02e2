// Prints which sentences are nearest to each question, with spans of C++20: see export_minilm.py.
#include "minilm.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

constexpr size_t width = 384, nearest = 3;

struct sentence {
  std::string text;
  std::array<float, width> direction;
};

// Reads a line of numbers and text, and computes its direction.
sentence read_sentence(std::istream &file) {
  int64_t count = 0;
  file >> count;
  std::vector<int64_t> words(count), mask(count, 1);
  for (int64_t &word : words) file >> word;
  sentence result;
  std::getline(file >> std::ws, result.text);
  if (!file) throw std::runtime_error("the file of sentences is damaged");

  std::vector<float> hidden(count * width);
  einkorn_failure why;
  if (einkorn::minilm(words, mask, 1, count, hidden, result.direction, &why) != EINKORN_OK) {
    std::array<char, 1000> message;
    minilm_describe(&why, message.data(), message.size());
    throw std::runtime_error(message.data());
  }
  return result;
}

float likeness(const sentence &a, const sentence &b) {
  return std::inner_product(a.direction.begin(), a.direction.end(), b.direction.begin(), 0.0f);
}

int main(int count, char **arguments) try {
  std::ifstream file(count > 1 ? arguments[1] : "sentences.txt");
  size_t questions = 0, sentences = 0;
  if (!(file >> questions >> sentences)) throw std::runtime_error("there is no file of sentences");
  std::vector<sentence> all;
  for (size_t k = 0; k < questions + sentences; k++) all.push_back(read_sentence(file));

  for (size_t q = 0; q < questions; q++) {
    std::vector<sentence> ranked(all.begin() + questions, all.end());
    std::stable_sort(ranked.begin(), ranked.end(), [&](const sentence &a, const sentence &b) {
      return likeness(all[q], a) > likeness(all[q], b);
    });
    std::printf("\n%s\n", all[q].text.c_str());
    for (size_t n = 0; n < std::min(nearest, ranked.size()); n++)
      std::printf("  %.2f  %s\n", likeness(all[q], ranked[n]), ranked[n].text.c_str());
  }
} catch (const std::exception &error) {
  std::cerr << error.what() << "\n";
  return 1;
}
