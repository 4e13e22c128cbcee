// twin_call.h -- what the C interfaces of all kernels on the CPU twin share: buffers in, JSON out.
#ifndef VMAMBA2_TWIN_CALL_H
#define VMAMBA2_TWIN_CALL_H

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ssd_forward_tiling.h"
#include "twin/launch.h"

namespace vmamba2 {

struct TwinOptions {
  int64_t seed;
  int64_t trace;
  int64_t only_blocks;
};

enum class Element { kTensor, kDt, kFloat };  // a buffer's dtype: x's, dt's, float32

struct BufferSlot {
  const char* name;
  Element element;
};

template <int kCount>
struct Buffers {
  void* data[kCount];
  int64_t bytes[kCount];

  uint8_t* At(int which) const { return static_cast<uint8_t*>(data[which]); }
};

// Of this thread's newest call: what its C function returned, and its launch's trace.
inline thread_local std::string newest_answer;
inline thread_local std::string newest_trace;

inline uint32_t ElementBytes(Element element, int32_t dtype, int32_t dt_dtype) {
  const int32_t type = element == Element::kTensor ? dtype : dt_dtype;
  return element == Element::kFloat || type == static_cast<int32_t>(DType::kFloat32) ? 4 : 2;
}

// The buffers that are there; the first `inputs` slots are inputs.
template <int kCount>
std::vector<twin::GmBuffer> Registered(const BufferSlot (&slots)[kCount], int inputs,
                                       const Buffers<kCount>& buffers, int32_t dtype, int32_t dt_dtype) {
  std::vector<twin::GmBuffer> registered;
  for (int i = 0; i < kCount; ++i) {
    if (buffers.data[i] == nullptr) {
      continue;
    }
    twin::GmBuffer gm;
    gm.name = slots[i].name;
    gm.data = buffers.data[i];
    gm.bytes = static_cast<uint64_t>(buffers.bytes[i]);
    gm.granule = ElementBytes(slots[i].element, dtype, dt_dtype);
    gm.kind = i < inputs ? twin::GmBuffer::kInput : twin::GmBuffer::kOutput;
    registered.push_back(gm);
  }
  return registered;
}

inline twin::GmBuffer Workspace(std::vector<uint8_t>* memory, int64_t bytes) {
  memory->resize(static_cast<size_t>(bytes));
  twin::GmBuffer gm;
  gm.name = "workspace";
  gm.data = memory->data();
  gm.bytes = memory->size();
  gm.granule = 32;
  gm.kind = twin::GmBuffer::kWorkspace;
  return gm;
}

inline twin::Options LaunchOptions(const TwinOptions& options) {
  twin::Options launch;
  launch.seed = static_cast<uint64_t>(options.seed);
  launch.trace = options.trace != 0;
  launch.only_blocks = static_cast<int>(options.only_blocks);
  return launch;
}

inline std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

inline std::string ReportJson(const twin::Report& report) {
  return report.json.empty() ? std::string("null") : report.json;
}

// An object of integers.
class IntegersJson {
 public:
  IntegersJson& Add(const char* name, int64_t value) {
    text_ += (text_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + std::to_string(value);
    return *this;
  }
  std::string Text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

// The answer that `ask` gives, or why the call was refused; valid until this thread's next call.
template <typename Ask>
const char* Answered(Ask ask) {
  try {
    newest_answer = ask();
  } catch (const std::invalid_argument& error) {
    newest_answer = "{\"refused\": " + Quoted(error.what()) + "}";
  }
  return newest_answer.c_str();
}

}  // namespace vmamba2

#endif  // VMAMBA2_TWIN_CALL_H
