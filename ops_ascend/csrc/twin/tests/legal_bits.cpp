// legal_bits.cpp -- masks on bits and transpositions of sixteen blocks, and the rules of both.
#include <cstring>

#include "planted.h"

namespace planted {
namespace {

// 1024 floats of the input at 0, fives at 8192; stores 1024 floats from 8192.
Kernel on_words(const std::function<void()>& body) {
  return [body](const Gm& gm) {
    on_aiv([&] {
      DataCopy(ub(0), global<float>(gm.in), 1024);
      hand_over<HardEvent::MTE2_V>();
      Duplicate(ub(8192), 5.0f, 1024);
      PipeBarrier<PIPE_V>();
      body();
      hand_over<HardEvent::V_MTE3>();
      DataCopy(global<float>(gm.out), ub(8192), 1024);
    });
  };
}

// Bit by bit: some of the expected words are NaN.
Check gives(const std::function<float(const float*, uint32_t)>& want) {
  return [want](const Host& h) -> std::string {
    for (uint32_t i = 0; i < 1024; ++i) {
      const float expected = want(h.in.data(), i);
      if (std::memcmp(&h.out[i], &expected, sizeof(float)) != 0) {
        return "out[" + std::to_string(i) + "] is " + std::to_string(h.out[i]) + ", must be " +
               std::to_string(expected);
      }
    }
    return "";
  };
}

float with_bits(float value, uint32_t keep, uint32_t set, uint32_t flip) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof(word));
  word = ((word & keep) | set) ^ flip;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

LocalTensor<uint16_t> bits(uint32_t address, uint32_t elements = 2048) {
  return ub<uint16_t>(address, elements);
}

void masks(Registry& r) {
  r.legal("clear_low_halves", on_words([] {  // a float's upper 16 bits
            Duplicate(ub<int32_t>(4096), static_cast<int32_t>(0xffff0000u), 64);
            PipeBarrier<PIPE_V>();
            And(bits(8192), bits(0), bits(4096), 128, 16, {1, 1, 1, 8, 8, 0});
          }),
          gives([](const float* x, uint32_t i) { return with_bits(x[i], 0xffff0000u, 0, 0); }));
  r.legal("set_signs", on_words([] {
            Duplicate(ub<int32_t>(4096), static_cast<int32_t>(0x80000000u), 1024);
            PipeBarrier<PIPE_V>();
            Or(bits(8192), bits(0), bits(4096), 2048);
          }),
          gives([](const float* x, uint32_t i) { return with_bits(x[i], ~0u, 0x80000000u, 0); }));
  r.legal(
      "flip_bits", on_words([] {
        uint64_t mask[2] = {0xffffffffffffffffULL, 0};
        Not(bits(8192), bits(0), mask, 16, {1, 1, 8, 8});
      }),
      gives([](const float* x, uint32_t i) { return i % 64 < 32 ? with_bits(x[i], ~0u, 0, ~0u) : 5.0f; }));
  r.legal("flip_bits_twice", on_words([] {
            Not(ub<int16_t>(8192, 2048), ub<int16_t>(0, 2048), 2048);
            PipeBarrier<PIPE_V>();
            Not(ub<int16_t>(8192, 2048), ub<int16_t>(8192, 2048), 128, 16, {1, 1, 8, 8});
          }),
          gives([](const float* x, uint32_t i) { return x[i]; }));
}

// Rows of 8 floats `pitch` apart become columns: 8 rows of `width` floats.
void list_rows(LocalTensor<float> (&to)[16], LocalTensor<float> (&from)[16], uint32_t pitch, uint32_t width) {
  for (uint32_t i = 0; i < 16; ++i) {
    from[i] = ub(0)[i * pitch];
    to[i] = ub(8192)[i / 2 * width + i % 2 * 8];
  }
}

void transposes(Registry& r) {
  r.legal("transpose_16_by_8", on_words([] {
            LocalTensor<float> to[16], from[16];
            list_rows(to, from, 8, 16);
            TransDataTo5HD<float>(to, from, {false, false, 1, 0, 0});
          }),
          gives([](const float* x, uint32_t i) { return i < 128 ? x[i % 16 * 8 + i / 16] : 5.0f; }));
  r.legal("transpose_64_by_8", on_words([] {  // a repeat takes the next 16 rows
            LocalTensor<float> to[16], from[16];
            list_rows(to, from, 8, 64);
            TransDataTo5HD<float>(to, from, {false, false, 4, 2, 16});
          }),
          gives([](const float* x, uint32_t i) { return i < 512 ? x[i % 64 * 8 + i / 64] : 5.0f; }));
  r.legal("transpose_16_by_64", on_words([] {  // a repeat takes the next 8 columns
            uint64_t to[16], from[16];
            for (uint32_t i = 0; i < 16; ++i) {
              from[i] = ub(0)[i * 64].GetPhyAddr();
              to[i] = ub(8192).GetPhyAddr(i * 8);
            }
            TransDataTo5HDParams params;
            params.repeatTimes = 8;
            params.dstRepStride = 16;
            params.srcRepStride = 1;
            TransDataTo5HD<float>(to, from, params);
          }),
          gives([](const float* x, uint32_t i) { return x[i % 16 * 64 + i / 16]; }));
  r.legal(
      "transpose_halves",
      [](const Gm& gm) {
        on_aiv([&] {
          DataCopy(ub<half>(0), global<half>(gm.in16), 256);
          hand_over<HardEvent::MTE2_V>();
          LocalTensor<half> to[16], from[16];
          for (uint32_t i = 0; i < 16; ++i) from[i] = ub<half>(0)[i * 16], to[i] = ub<half>(4096)[i * 16];
          TransDataTo5HD(to, from, TransDataTo5HDParams());
          hand_over<HardEvent::V_MTE3>();
          DataCopy(global<half>(gm.out16), ub<half>(4096), 256);
        });
      },
      [](const Host& h) -> std::string {
        for (uint32_t i = 0; i < 256; ++i) {
          if (h.out16[i] != h.in16[i % 16 * 16 + i / 16]) return "out16[" + std::to_string(i) + "]";
        }
        return "";
      });
}

Kernel turns(const std::function<void(LocalTensor<float> (&)[16], LocalTensor<float> (&)[16])>& body) {
  return [body](const Gm&) {
    on_aiv([&] {
      Duplicate(ub(0), 1.0f, 1024);
      PipeBarrier<PIPE_V>();
      LocalTensor<float> to[16], from[16];
      list_rows(to, from, 8, 16);
      body(to, from);
    });
  };
}

}  // namespace

void add_legal_bits(Registry& registry) {
  masks(registry);
  transposes(registry);
}

void add_bit_faults(Registry& r) {
  using List = LocalTensor<float>(&)[16];
  r.fault("bits_of_floats", "element type (float) is not supported",
          [](const Gm&) { on_aiv([] { And(ub(0), ub(4096), ub(8192), 64); }); });
  r.fault("bits_mask_too_large", "mask (129) must be at most 128",
          [](const Gm&) { on_aiv([] { Or(bits(0), bits(4096), bits(8192), 129, 1, {1, 1, 1, 8, 8, 8}); }); });
  r.fault("not_never_written", "must be written before it is read",
          [](const Gm&) { on_aiv([] { Not(bits(0), bits(4096), 64); }); });
  r.fault("transpose_one_repeat_stride", "srcRepStride (16) must be 0 when repeatTimes is 1",
          turns([](List to, List from) { TransDataTo5HD<float>(to, from, {false, false, 1, 0, 16}); }));
  r.fault("transpose_repeats", "repeatTimes (256) must be at most 255",
          turns([](List to, List from) { TransDataTo5HD<float>(to, from, {false, false, 256, 16, 16}); }));
  r.fault("transpose_high_half", "srcHighHalf (1) must be false",
          turns([](List to, List from) { TransDataTo5HD<float>(to, from, {false, true, 1, 0, 0}); }));
  r.fault("transpose_alignment", "srcList address (16) must be a multiple of 32 bytes",
          turns([](List to, List from) {
            from[3] = ub(0)[4];
            TransDataTo5HD<float>(to, from, {false, false, 1, 0, 0});
          }));
  r.fault("transpose_written_twice", "must not be written twice",
          turns([](List to, List from) { TransDataTo5HD<float>(to, from, {false, false, 2, 2, 16}); }));
  r.fault("transpose_in_place", "must not be a block of srcList",
          turns([](List, List from) { TransDataTo5HD<float>(from, from, {false, false, 1, 0, 0}); }));
  r.fault("transpose_unbound_list", "dstList (no buffer) must be bound", turns([](List to, List from) {
            to[15] = LocalTensor<float>();
            TransDataTo5HD<float>(to, from, {false, false, 1, 0, 0});
          }));
  r.fault("transpose_past_tensor", "must stay inside the tensor",
          turns([](List to, List from) { TransDataTo5HD<float>(to, from, {false, false, 9, 16, 16}); }));
  r.fault("transpose_never_written", "must be written before it is read", turns([](List to, List from) {
            from[15] = ub(4096);
            TransDataTo5HD<float>(to, from, {false, false, 1, 0, 0});
          }));
}

}  // namespace planted
