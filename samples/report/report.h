// The page of a training run: one self-contained HTML file, and the same facts as JSON. It says
// which numbers the privacy guarantee covers and which it does not.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dp/engine/privacy_statement.h"
#include "samples/report/provenance.h"

namespace sotto {

struct TrainingReport {
  static constexpr double unmeasured = std::numeric_limits<double>::quiet_NaN();

  struct Setting {
    std::string name;
    std::string value;
  };

  // The measurements after `step` updates; unmeasured if there are none.
  struct Point {
    std::int64_t step = 0;
    double loss = unmeasured;              // mean over the batch
    double measure = unmeasured;           // on the test data
    double epsilon = unmeasured;           // spent so far, at the statement's delta
    double clipped_fraction = unmeasured;  // of the samples of the step
  };

  // L2 norms of per-sample gradients before clipping, of the last `steps` steps up to `step`.
  struct NormHistogram {
    std::int64_t step = 0, steps = 1;
    std::vector<double> edges{};  // counts.size() + 1, increasing
    std::vector<std::int64_t> counts{};
    std::int64_t below = 0, above = 0;  // norms outside of the edges
    double clip_bound = unmeasured;
    double clipped_fraction = unmeasured;
  };

  struct Phase {
    std::string name;
    double seconds = 0;
    std::uint64_t peak_bytes = 0;
  };

  // The communication of a run of several processes, as rank 0 counted it.
  struct Communication {
    // All operations of one place in the program.
    struct Place {
      std::string name;
      std::int64_t operations = 0;
      std::uint64_t bytes_sent = 0, bytes_received = 0;
      double seconds_waited = 0;
    };
    int ranks = 1;
    std::vector<std::string> lines{};  // for people
    std::vector<Place> places{};
  };

  // How often each class was taken for each, on the test data.
  struct Confusion {
    std::vector<std::string> classes;
    std::vector<std::int64_t> counts;  // [class][predicted class], row by row

    // A table of lines; long names are cut.
    std::string to_text() const;
  };

  // A test picture that the final model takes for another class.
  struct WrongPicture {
    std::string png;  // a whole file
    std::string label, predicted;
    double probability = unmeasured;  // of the predicted class, as the model says
  };

  std::string title;
  std::vector<Setting> settings;
  std::vector<Setting> results;  // measures of the final model on the test data
  std::optional<Confusion> confusion;
  std::vector<WrongPicture> wrong_pictures;  // none of data that privacy protects
  std::string generated_text;                // by the final model, UTF-8; empty: none
  std::vector<Point> points;                 // increasing in step
  std::vector<NormHistogram> norms;          // increasing in step
  std::vector<Phase> phases;
  std::optional<Communication> communication;  // nullopt: one process
  std::optional<PrivacyStatement> privacy;     // nullopt: trained without privacy
  std::string no_privacy_reason;               // shown if there is no statement
  bool measured_on_private_data = false;       // instead of held-out data
  // Non-private numbers besides those that the page finds by itself (not_private_numbers).
  std::vector<std::string> not_private;
  // The name of the measure, such as "accuracy", and whether it is a fraction, shown in percent.
  std::string measure = "accuracy";
  std::string held_out = "test";  // the data that it is measured on: "test" or "validation"
  bool measure_in_percent = true;
  double test_measure = unmeasured;
  double ordinary_measure = unmeasured;  // of a model trained beside this one, without privacy
  double epochs = 0;
  double seconds = 0;
  Provenance provenance;
};

// One sentence for each kind of number in the report that is computed from private data without
// noise, and so is not covered by the guarantee.
std::vector<std::string> not_private_numbers(const TrainingReport& report);

// Returns a whole page: UTF-8, well-formed as XML. Throws std::invalid_argument when a histogram's
// edges do not increase or do not match its counts, unless epsilon >= 0 and 0 <= delta < 1, and for
// pictures of a test on private data.
std::string to_html(const TrainingReport& report);

// Returns the facts under the names of the structs above; null for numbers that were not measured.
nlohmann::json to_json(const TrainingReport& report);
// A part of it, which statistics files hold, too.
nlohmann::json to_json(const TrainingReport::NormHistogram& norms);

}  // namespace sotto
