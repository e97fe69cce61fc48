#include "nn/data/tables/csv_reader.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include <csv.h>

#include "core/error.h"
#include "core/io/file_buffer.h"
#include "nn/data/file_kind.h"
#include "nn/data/gzip.h"
#include "nn/data/tables/csv_preamble.h"

namespace sotto {

namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 18;
// Places in a piece have 32 bits.
constexpr std::size_t largest_record = std::size_t{1} << 30;
// Of Ctrl-Z and line ends that may be the end of the file.
constexpr std::size_t max_held_bytes = 4096;

struct FileStream : std::istream {
  explicit FileStream(const std::string& path) : std::istream(nullptr), buffer(path) {
    rdbuf(&buffer);
  }
  FileBuffer buffer;
};

// The number of line ends in a field: LF, CR or both.
std::int64_t line_ends(std::string_view text) {
  std::int64_t count = std::count(text.begin(), text.end(), '\n');
  for (std::size_t at = text.find('\r'); at != text.npos; at = text.find('\r', at + 1)) {
    if (at + 1 == text.size() || text[at + 1] != '\n') ++count;
  }
  return count;
}

// Records that were parsed together. The fields of one that goes on in the next piece come last.
struct Piece {
  struct Record {
    std::size_t fields_end;
    std::int64_t line;
  };

  std::string text;                 // the fields, one after the other
  std::vector<std::uint32_t> ends;  // the end of each
  std::vector<Record> records;
  std::string error;  // thrown after the records
  bool last = false;
  char delimiter = ',';
  std::int64_t preamble_lines = 0;
};

// Owns libcsv's parser. It calls on_field and on_row, which write to the piece.
class Parser {
 public:
  Parser(std::istream& in, const std::string& name, const CsvOptions& options)
      : in_(in, name), options_(options), max_(options.max_record_bytes), bytes_(piece_bytes) {
    const auto delimiter = static_cast<unsigned char>(options.delimiter);
    check(delimiter != 0 && delimiter < 0x80 && !std::strchr("\"\r\n", delimiter),
          "csv: {}: the delimiter is the byte {}", name, delimiter);
    check(max_ >= 1 && max_ <= largest_record, "csv: {}: records of at most {} bytes", name, max_);
    csv_init(&csv_, CSV_STRICT | CSV_STRICT_FINI | CSV_REPALL_NL);
    csv_set_delim(&csv_, delimiter);
    if (!options.quotes) csv_set_quote(&csv_, 0);  // a byte that no text has
  }
  ~Parser() { csv_free(&csv_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  // Parses on, from the record that `before` ends in, until a record or the file ends.
  void parse(const Piece& before, Piece& piece) {
    begin(before, piece);
    while (piece.records.empty() && piece.error.empty() && !piece.last) parse_more(piece);
  }

 private:
  void begin(const Piece& before, Piece& piece) {
    const std::size_t whole = before.records.empty() ? 0 : before.records.back().fields_end;
    const std::size_t cut = whole == 0 ? 0 : before.ends[whole - 1];
    piece.text.assign(before.text, cut);
    piece.ends.clear();
    for (std::size_t k = whole; k < before.ends.size(); ++k) {
      piece.ends.push_back(before.ends[k] - static_cast<std::uint32_t>(cut));
    }
    piece.records.clear();
    piece_ = &piece;
  }

  void parse_more(Piece& piece) {
    const std::size_t got = in_.read(bytes_);
    piece.last = got < bytes_.size();
    std::string more(reinterpret_cast<const char*>(bytes_.data()), got);
    if (std::exchange(first_, false)) skip_preamble(more, piece);
    if (!piece.error.empty()) return;
    if (comments_) comment_filter_.filter(more);
    text_ = std::exchange(held_, {}) + more;
    // Behind Ctrl-Z there may be more than this piece has.
    const std::size_t end = end_mark(text_);
    if (!piece.last && text_.size() - end <= max_held_bytes) held_ = text_.substr(end);
    if (piece.last || !held_.empty()) text_.resize(end);
    piece.delimiter = static_cast<char>(csv_get_delim(&csv_));
    piece.preamble_lines = preamble_lines_;
    const std::string_view text = text_;
    // The callbacks are called from C, where an exception would not clean up.
    piece.text.reserve(piece.text.size() + csv_.entry_pos + text.size());
    piece.ends.reserve(piece.ends.size() + text.size() + 1);
    piece.records.reserve(piece.records.size() + text.size() + 1);
    quotes_ = quotes_ || text.find('"') != text.npos;
    feed(text, piece.last);
    if (fault_ != Fault::none) {
      piece.error = fmt::format("csv: {}: line {}: {}", in_.name(), record_line_, reason());
    }
  }

  // Removes the preamble from the beginning of the file.
  void skip_preamble(std::string& beginning, Piece& piece) {
    const std::string_view kind = file_kind(std::span(bytes_).first(beginning.size()));
    if (!kind.empty()) {
      piece.error = fmt::format("csv: {}: not CSV: it looks like {}", in_.name(), kind);
      return;
    }
    const CsvPreamble preamble = csv_preamble(beginning, options_.delimiter);
    csv_set_delim(&csv_, static_cast<unsigned char>(preamble.delimiter));
    comments_ = preamble.comments;
    preamble_lines_ = preamble.lines;
    line_ = record_line_ = 1 + preamble.lines;
    beginning.erase(0, preamble.bytes);
  }

  void feed(std::string_view text, bool last) {
    const std::size_t sound = std::min(text.find('\0'), text.size());
    const std::size_t done = csv_parse(&csv_, text.data(), sound, on_field, on_row, this);
    if (done < sound) {
      refuse(csv_error(&csv_) == CSV_EPARSE ? Fault::quote : Fault::memory);
    } else if (sound < text.size()) {
      refuse(Fault::zero);
    } else if (csv_.entry_pos + record_bytes() > max_) {
      refuse(Fault::size);
    } else if (last && csv_fini(&csv_, on_field, on_row, this) != 0) {
      refuse(Fault::open);
    }
  }

  enum class Fault { none, quote, memory, zero, open, size, fields };

  // Keeps the first fault of the file.
  void refuse(Fault fault) {
    if (fault_ != Fault::none) return;
    fault_ = fault;
    found_ = record_fields();
  }

  std::string reason() const {
    switch (fault_) {
      case Fault::quote:
        return fmt::format(
            "field {}: a quote within a field, or text behind the quote that closes one",
            found_ + 1);
      case Fault::zero: return fmt::format("field {}: a zero byte", found_ + 1);
      case Fault::open: return fmt::format("field {}: the quote is not closed", found_ + 1);
      case Fault::size: return fmt::format("a record of more than {} bytes", max_);
      case Fault::fields:
        return fmt::format("{} fields, but {} in the {} record", found_, row_fields_,
                           row_fields_ == fields_ ? "first" : "second");
      default: return "no memory for a field";
    }
  }

  // The fields of the record that is not complete.
  std::size_t record_fields() const { return piece_->ends.size() - first_field(); }
  std::size_t first_field() const {
    return piece_->records.empty() ? 0 : piece_->records.back().fields_end;
  }
  std::size_t record_begin() const {
    const std::size_t first = first_field();
    return first == 0 ? 0 : piece_->ends[first - 1];
  }
  std::size_t record_bytes() const {
    return piece_->text.size() - record_begin() + record_fields();
  }

  void take_field(std::string_view text) {
    if (fault_ != Fault::none) return;
    piece_->text.append(text);
    piece_->ends.push_back(static_cast<std::uint32_t>(piece_->text.size()));
    if (quotes_) line_ += line_ends(text);
    after_cr_ = false;
  }

  void take_row(int end) {
    if (fault_ != Fault::none) return;
    if (end == '\n' && std::exchange(after_cr_, false)) return;  // the rest of a CRLF
    after_cr_ = end == '\r';
    ++line_;
    if (is_comment()) return drop_record();
    if (fields_ == 1 && record_fields() == 0)  // no empty line, but an empty field
      piece_->ends.push_back(static_cast<std::uint32_t>(piece_->text.size()));
    const std::size_t fields = record_fields();
    if (fields > 0) {
      if (!fits(fields)) return refuse(Fault::fields);
      if (record_bytes() > max_) return refuse(Fault::size);
      begins_with_hash_ = begins_with_hash_ || piece_->text[record_begin()] == '#';
      piece_->records.push_back({piece_->ends.size(), record_line_});
    }
    record_line_ = line_;
  }

  // True for a comment: one that CommentFilter has emptied, or a line that begins with '#' and has
  // no delimiter, if the table has several columns and none of its rows begins so.
  bool is_comment() const {
    if (record_fields() != 1 || piece_->text[record_begin()] != '#') return false;
    return (comments_ && record_bytes() == 2) || (fields_ > 1 && !begins_with_hash_);
  }
  void drop_record() {
    piece_->text.resize(record_begin());
    piece_->ends.resize(first_field());
    record_line_ = line_;
  }

  // Whether a record may have so many fields; notes those of the first two.
  bool fits(std::size_t fields) {
    if (fields_ == 0) {
      fields_ = fields;
      const std::size_t before = fields == 1 ? 0 : piece_->ends.end()[-2];
      header_ends_empty_ = fields > 1 && piece_->ends.back() == before;
      return true;
    }
    if (row_fields_ == 0 && options_.ragged_header &&
        (fields == fields_ + 1 || (header_ends_empty_ && fields + 1 == fields_))) {
      row_fields_ = fields;
    }
    if (row_fields_ == 0) row_fields_ = fields_;
    return fields == row_fields_;
  }

  static void on_field(void* text, std::size_t bytes, void* parser) {
    static_cast<Parser*>(parser)->take_field({static_cast<const char*>(text), bytes});
  }
  static void on_row(int end, void* parser) { static_cast<Parser*>(parser)->take_row(end); }

  csv_parser csv_{};
  GzipReader in_;
  CsvOptions options_;
  std::size_t max_;
  std::vector<std::uint8_t> bytes_;
  std::string text_;  // the parsed text of them
  std::string held_;  // from Ctrl-Z on, until it is known whether the file ends there
  bool comments_ = false;
  CommentFilter comment_filter_;
  bool begins_with_hash_ = false;  // whether a record does
  Piece* piece_ = nullptr;
  bool first_ = true;
  bool quotes_ = false;  // whether there has been one: else no field has a line end
  bool after_cr_ = false;
  std::int64_t preamble_lines_ = 0, line_ = 1, record_line_ = 1;
  std::size_t fields_ = 0;      // of the first record
  std::size_t row_fields_ = 0;  // of the later records
  bool header_ends_empty_ = false;
  Fault fault_ = Fault::none;
  std::size_t found_ = 0;  // the number of fields at the fault
};

}  // namespace

struct CsvReader::State {
  State(std::istream& in, std::string of, const CsvOptions& options)
      : name(std::move(of)), parser(in, name, options) {}
  State(const std::string& path, const CsvOptions& options)
      : name(path), file(std::make_unique<FileStream>(path)), parser(*file, name, options) {}

  void fetch();

  std::string name;
  std::unique_ptr<std::istream> file;
  Parser parser;
  std::unique_ptr<Piece> piece = std::make_unique<Piece>(), spare = std::make_unique<Piece>();
  std::size_t at = 0;  // the number of records of the piece that next() has moved to
  std::vector<std::string_view> fields;
  std::future<void>
      ahead;  // last member: waits in its destructor before the members that it writes to go
};

CsvReader::CsvReader(std::istream& in, std::string name, const CsvOptions& options)
    : state_(std::make_unique<State>(in, std::move(name), options)) {}

CsvReader::CsvReader(const std::string& path, const CsvOptions& options)
    : state_(std::make_unique<State>(path, options)) {}

CsvReader::~CsvReader() = default;

// The first piece is parsed on this thread: a small file needs no other.
void CsvReader::State::fetch() {
  if (ahead.valid()) {
    ahead.get();
  } else {
    parser.parse(*piece, *spare);
  }
  std::swap(piece, spare);
  at = 0;
  if (piece->last || !piece->error.empty()) return;
  ahead = std::async(std::launch::async, [this, before = piece.get(), into = spare.get()] {
    parser.parse(*before, *into);
  });
}

bool CsvReader::next() {
  State& s = *state_;
  while (s.at == s.piece->records.size()) {
    if (!s.piece->error.empty()) throw SystemFailure(s.piece->error);
    if (s.piece->last) return false;
    s.fetch();
  }
  const Piece& piece = *s.piece;
  std::size_t field = s.at == 0 ? 0 : piece.records[s.at - 1].fields_end;
  const std::size_t end = piece.records[s.at++].fields_end;
  std::size_t begin = field == 0 ? 0 : piece.ends[field - 1];
  s.fields.resize(end - field);
  for (std::string_view& text : s.fields) {
    text = {piece.text.data() + begin, piece.ends[field] - begin};
    begin = piece.ends[field++];
  }
  return true;
}

std::span<const std::string_view> CsvReader::fields() const { return state_->fields; }

const std::string& CsvReader::name() const { return state_->name; }

char CsvReader::delimiter() const { return state_->piece->delimiter; }

std::int64_t CsvReader::preamble_lines() const { return state_->piece->preamble_lines; }

std::int64_t CsvReader::line() const {
  return state_->at == 0 ? 0 : state_->piece->records[state_->at - 1].line;
}

}  // namespace sotto
