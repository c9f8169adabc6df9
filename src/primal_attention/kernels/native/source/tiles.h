// The positions of a batch, cut into tiles: a tile holds neighbouring valid positions of a sample.
// Ignored positions are in no tile. Nothing is computed for them, and what is there cannot spread.
#pragma once

#include <algorithm>
#include <vector>

#include "memory.h"

namespace primal {

enum class Type : int64_t { float32, bfloat16 };

struct Tile {
  int64_t sample, first, count;  // `first` counts the valid positions of the sample
  int64_t at;                    // positions of all tiles before this one, filled up to panels

  int64_t panels() const { return (count + PANEL - 1) / PANEL; }
};

// Neighbouring tiles whose sums are taken one after the other. The cut does not depend on the
// number of threads, hence no sum does.
struct Chunk {
  int64_t first_tile, last_tile;      // [first, last)
  int64_t first_sample, last_sample;  // [first, last]
  int64_t slot;                       // samples of all chunks before this one

  int64_t slot_of(int64_t sample) const { return slot + sample - first_sample; }
};

struct Positions {
  std::vector<Tile> tiles;
  std::vector<Chunk> chunks;
  std::vector<int64_t> valid;  // (B): the number of valid positions
  int64_t padded = 0;          // positions of all tiles, filled up to panels
  int64_t slots = 0;           // samples of all chunks
  int64_t longest = 0;         // panels of the largest tile

  // ignore: (B, N) bytes or nullptr. most: positions of a tile, a multiple of PANEL.
  Positions(int64_t batch, int64_t length, const uint8_t* ignore, int64_t most)
      : valid(batch, length), batch_(batch), length_(length) {
    if (ignore) gather(ignore);
    for (int64_t b = 0; b < batch; b++) {
      int64_t count = (valid[b] + most - 1) / most;
      if (!count) continue;
      if (count > 1 && count < 16) count = round_up(count, 2);  // equal shares for two threads
      int64_t size = round_up((valid[b] + count - 1) / count, PANEL);
      for (int64_t first = 0; first < valid[b]; first += size) {
        tiles.push_back({b, first, std::min(size, valid[b] - first), padded});
        padded += tiles.back().panels() * PANEL;
        longest = std::max(longest, tiles.back().panels());
      }
    }
  }

  // At most `count` chunks of nearly equal numbers of tiles.
  void cut(int64_t count) {
    Groups groups(tiles.size(), std::max<int64_t>(1, (tiles.size() + count - 1) / count));
    int64_t tile = 0;
    chunks.clear(), slots = 0;
    for (int64_t i = 0; i < groups.count; i++) {
      int64_t last = tile + groups.size(i);
      chunks.push_back({tile, last, tiles[tile].sample, tiles[last - 1].sample, slots});
      slots += tiles[last - 1].sample - tiles[tile].sample + 1;
      tile = last;
    }
  }

  // Where position i of a tile is in the (B, N, ...) tensors.
  int64_t place(const Tile& tile, int64_t i) const { return place(tile.sample, tile.first + i); }
  int64_t place(int64_t sample, int64_t number) const {
    if (!where_.empty()) number = where_[begin_[sample] + number];
    return sample * length_ + number;
  }

 private:
  int64_t batch_, length_;
  std::vector<int32_t> where_;  // the valid positions, sample after sample
  std::vector<int64_t> begin_;

  void gather(const uint8_t* ignore) {
    where_.reserve(batch_ * length_ + 1);
    for (int64_t b = 0; b < batch_; b++) {
      begin_.push_back(where_.size());
      for (int64_t i = 0; i < length_; i++)
        if (!ignore[b * length_ + i]) where_.push_back(static_cast<int32_t>(i));
      valid[b] = static_cast<int64_t>(where_.size()) - begin_[b];
    }
    where_.push_back(0);  // never empty: an empty list means that all positions are valid
  }
};

// The rows of a tile of a (B, N, width) tensor as float32.
class Rows {
 public:
  Rows(int64_t width, int64_t most_positions)
      : width_(width), stride_(round_up(width, PANEL)), copy_(most_positions * stride_),
        zeros_(stride_), row_(most_positions) {
    std::fill_n(static_cast<float*>(zeros_), stride_, 0.0f);
  }

  void gather(const void* tensor, Type type, const Positions& positions, const Tile& tile) {
    bool direct = type == Type::float32 && width_ % WIDTH == 0;
    for (int64_t i = 0; i < tile.panels() * PANEL; i++) {
      float* to = copy_ + i * stride_;
      row_[i] = zeros_;
      if (i >= tile.count) continue;
      int64_t at = positions.place(tile, i) * width_;
      row_[i] = to;
      if (direct) {
        row_[i] = static_cast<const float*>(tensor) + at;
      } else if (type == Type::float32) {
        std::memcpy(to, static_cast<const float*>(tensor) + at, width_ * sizeof(float));
        std::fill(to + width_, to + stride_, 0.0f);
      } else {
        const uint16_t* from = static_cast<const uint16_t*>(tensor) + at;
        for (int64_t k = 0; k < stride_; k++) {
          uint32_t bits = k < width_ ? static_cast<uint32_t>(from[k]) << 16 : 0;
          std::memcpy(to + k, &bits, sizeof bits);
        }
      }
    }
  }

  const float* operator()(int64_t i) const { return row_[i]; }

  // Channels first; `to` has the width, rounded up to WIDTH, as its number of rows or more.
  void transpose(int64_t panels, Block to) const {
    for (int64_t i = 0; i < panels * PANEL; i += WIDTH)
      for (int64_t k = 0; k < width_; k += WIDTH) {
        vec lane[WIDTH];
        for (int j = 0; j < WIDTH; j++) lane[j] = load(row_[i + j] + k);
        transpose_lanes(lane);
        float* out = to.at(k, i);
        for (int j = 0; j < WIDTH; j++) store(out + j * PANEL, lane[j]);
      }
  }

 private:
  int64_t width_, stride_;
  Buffer copy_, zeros_;
  std::vector<const float*> row_;
};

PRIMAL_INLINE uint16_t to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 64);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Write rows (count, stride) of a tile to its places in a (B, N, width) tensor.
static void scatter(const float* rows, int64_t stride, int64_t width, void* tensor, Type type,
                    const Positions& positions, const Tile& tile) {
  for (int64_t i = 0; i < tile.count; i++, rows += stride) {
    int64_t at = positions.place(tile, i) * width;
    if (type == Type::float32) {
      std::memcpy(static_cast<float*>(tensor) + at, rows, width * sizeof(float));
    } else {
      uint16_t* to = static_cast<uint16_t*>(tensor) + at;
      for (int64_t k = 0; k < width; k++) to[k] = to_bfloat16(rows[k]);
    }
  }
}

// Ignored rows of a (B, N, width) tensor are zero.
static void clear_ignored(void* tensor, Type type, int64_t width, const uint8_t* ignore,
                          int64_t places) {
  int64_t bytes = width * (type == Type::float32 ? 4 : 2);
  for (int64_t i = 0; ignore && i < places; i++)
    if (ignore[i]) std::memset(static_cast<char*>(tensor) + i * bytes, 0, bytes);
}

}  // namespace primal
