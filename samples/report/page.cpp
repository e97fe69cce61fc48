#include "samples/report/page.h"

#include <fmt/format.h>

#include "samples/report/charts.h"
#include "samples/report/report_style.h"

namespace sotto {

namespace {

std::string origin_section(const Provenance& origin) {
  return section("How this page was made", definitions("facts", {{"Time", origin.time},
                                                                 {"Version of sotto", origin.sotto},
                                                                 {"Machine", origin.machine},
                                                                 {"Command", origin.command}}));
}

}  // namespace

std::string to_html(const Page& page) {
  const std::string title = escape(page.title);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{0}</title>\n"
      "<style>\n{1}{2}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{0}</h1>\n</header>\n"
      "{3}{4}</main>\n</body>\n</html>\n",
      title, report_style, page.style, page.body, origin_section(page.origin));
}

std::string section(const std::string& heading, const std::string& body) {
  return fmt::format("<section>\n{}{}</section>\n",
                     heading.empty() ? "" : fmt::format("<h2>{}</h2>\n", escape(heading)), body);
}

std::string definitions(const char* style, const NamedTexts& rows) {
  std::string html = fmt::format("<dl class=\"{}\">\n", style);
  for (const auto& [name, value] : rows)
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
  return html + "</dl>\n";
}

std::string bullets(const std::vector<std::string>& texts) {
  if (texts.empty()) return "<p class=\"empty\">None.</p>\n";
  std::string html = "<ul>\n";
  for (const std::string& text : texts) html += fmt::format("<li>{}</li>\n", escape(text));
  return html + "</ul>\n";
}

std::string banner(const std::string& bold, const std::string& html) {
  return fmt::format("<div class=\"banner\" role=\"alert\"><strong>{}</strong> {}</div>\n",
                     escape(bold), html);
}

std::string secret_banner(const std::string& why) {
  return banner("This page is SECRET.", why + " Keep it as secret as the data.");
}

}  // namespace sotto
