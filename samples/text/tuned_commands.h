// The uses of a tuned model: measuring, predicting, writing, and giving it to other software.
#pragma once

#include <cstdint>
#include <string>

#include "nn/models/generate.h"
#include "samples/cli/model_command.h"
#include "samples/pretrained/export.h"
#include "samples/text/tuned_text.h"

namespace sotto::text {

// Measures a saved tuned model on --data, and tells the results.
void evaluate_tuned(const samples::ModelCommand& command);
// Predicts the class of each unit of --data.
void predict_tuned(const samples::ModelCommand& command);

// A language model to write with: a saved tuned one, or a published one as it is.
struct Writer {
  nn::Pretrained pretrained;
  Tokenizer tokenizer;
};
// True for a folder, a GGUF file and a saved tuned model.
bool is_writer(const std::string& path);
Writer open_writer(const std::string& path);
// The prompt and what follows, which `tell` gets piece by piece.
void write_on(const Writer& writer, const std::string& prompt, nn::GenerateOptions options,
              const std::function<void(const std::string& text)>& tell);

// Writes a saved tuned model for its first publisher's software, the whole one with its tokenizer.
// Tells where that software computes another classifier.
void export_tuned(const samples::ExportCommand& command);

}  // namespace sotto::text
