#!/usr/bin/env python3
"""The pages that programs write, in Debian's chromium: light and dark, on a desk and on a phone. Nothing is loaded,
nothing is wider than the page but what scrolls, and every text can be read.

usage: pages_in_browser.py MNIST TABULAR TEXT AUDIT MEMORY_PROFILE MEMORY_TOUR PRIVACY_BUDGET
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BROWSER = shutil.which("chromium")
DESK, PHONE = 1080, 390
SMALLEST_LABEL = 10  # pixels
LEAST_CONTRAST = 4.5  # WCAG 2.1, 1.4.3
# In a wrapper whose frames hold the pages: what each frame shows, into the element "found".
SCRIPT = """
const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const colors = new Map();
function rgba(color) {
  if (!colors.has(color)) {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    colors.set(color, [...pixel.getImageData(0, 0, 1, 1).data]);
  }
  return colors.get(color);
}
function behind(element) {
  if (!element) return [255, 255, 255];
  const [r, g, b, a] = rgba(getComputedStyle(element).backgroundColor);
  if (a == 255) return [r, g, b];
  const below = behind(element.parentElement);
  return [r, g, b].map((c, k) => (c * a + below[k] * (255 - a)) / 255);
}
function luminance(rgb) {
  const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(element, svg) {
  const style = getComputedStyle(element);
  const [a, b] = [luminance(rgba(svg ? style.fill : style.color).slice(0, 3)), luminance(behind(element))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
function own_text(element) {
  return [...element.childNodes].filter(n => n.nodeType == 3).map(n => n.data).join("").trim();
}
function look(frame) {
  const page = frame.contentDocument, found = [], width = frame.clientWidth;
  if (page.documentElement.scrollWidth > width) found.push(`the page is ${page.documentElement.scrollWidth} wide`);
  for (const element of page.querySelectorAll("[src], [href]")) {
    const from = element.getAttribute("src") || element.getAttribute("href");
    if (!/^(data:|#)/.test(from)) found.push(`loads ${from}`);
  }
  let texts = 0;
  for (const element of page.body.querySelectorAll("*")) {
    const text = own_text(element), svg = element.tagName == "text";
    if (!text || ["title", "style"].includes(element.tagName.toLowerCase())) continue;
    ++texts;
    const at = element.getBoundingClientRect();
    if (!element.closest(".scroll") && (at.right > width + 0.5 || at.left < -0.5)) found.push(`beyond the page: ${text}`);
    const size = parseFloat(getComputedStyle(element).fontSize) * (svg ? element.getScreenCTM().a : 1);
    if (size < SMALLEST_LABEL) found.push(`${size.toFixed(1)} pixels: ${text}`);
    const ratio = contrast(element, svg);
    if (ratio < LEAST_CONTRAST) found.push(`contrast ${ratio.toFixed(1)}: ${text}`);
  }
  return {page: frame.title, width: width, texts: texts, dark: luminance(behind(page.body)) < 0.5, found: found};
}
window.onload = () => {
  document.getElementById("found").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
};
"""


def wrapper(pages):
    frames = "".join(
        f'<iframe title="{html.escape(name)}" style="border:0;width:{width}px;height:900px" srcdoc="{html.escape(text)}">'
        "</iframe>" for name, text in pages.items() for width in (DESK, PHONE))
    script = SCRIPT.replace("SMALLEST_LABEL", str(SMALLEST_LABEL)).replace("LEAST_CONTRAST", str(LEAST_CONTRAST))
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"/><meta name="color-scheme" content="light dark"/></head><body>'
        f'{frames}<pre id="found"></pre><script>{script}</script></body></html>')


def looked_at(pages, dark):
    """What chromium finds in the pages, a dictionary for each and each width, and its console's messages."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "pages.html")
        path.write_text(wrapper(pages), encoding="utf-8")
        command = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
            "--enable-logging=stderr", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--window-size=1200,900", "--dump-dom",
            path.as_uri()
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    text = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)[1]
    return json.loads(html.unescape(text)), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def written(programs):
    """The pages by the program that wrote them."""
    mnist, tabular, text, audit, memory_profile, memory_tour, privacy_budget = programs
    few = ["--train-size", "600", "--test-size", "200", "--batch-size", "60", "--epochs", "3", "--quiet"]
    runs = {
        "mnist": [mnist, *few, "--compare", "--statistics", "--save", "m.safetensors"],
        "mnist without privacy": [mnist, *few, "--no-privacy"],
        "tabular": [tabular, "train", *few],
        "text": [text, "train", *few],
        "audit": [audit, "--canaries", "200"],
        "memory_profile": [memory_profile],
        "memory_tour": [memory_tour],
        "privacy_budget spent": [privacy_budget, "spent", "--ledger", "m.safetensors.ledger", "--delta", "1e-5"],
        "privacy_budget noise": [
            privacy_budget, "noise", "--epsilon", "3", "--delta", "1e-5", "--dataset-size", "6000", "--batch-size",
            "256", "--epochs", "3"
        ],
    }
    pages = {}
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        for name, command in runs.items():
            subprocess.run([*command, "--report", page], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            pages[name] = page.read_text(encoding="utf-8")
            page.unlink()
    return pages


class Browser(unittest.TestCase):

    def test_faults_would_be_found(self):
        page = (
            '<html><head><style>body{background:#fff}</style></head><body><p style="width:2000px">wide</p>'
            '<p style="font-size:7px">small</p><p style="color:#ccc">pale</p><img src="http://127.0.0.1:9/x.png"/>'
            '<script>no_such()</script></body></html>'
        )
        found, console = looked_at({"bad": page}, dark=False)
        faults = " ".join(found[1]["found"])
        for words in ("the page is 20", "loads http://127.0.0.1:9/x.png", "beyond the page: wide", "7.0 pixels: small",
                      "contrast 1.6: pale"):
            self.assertIn(words, faults)
        self.assertTrue(console)

    def test_pages_can_be_read_on_a_desk_and_on_a_phone_in_both_schemes(self):
        pages = written([os.path.abspath(path) for path in sys.argv[1:8]])
        for dark in (False, True):
            found, console = looked_at(pages, dark)
            self.assertEqual(console, [])
            self.assertEqual(len(found), 2 * len(pages))
            for each in found:
                with self.subTest(page=each["page"], width=each["width"], dark=dark):
                    self.assertEqual(each["dark"], dark)
                    self.assertGreater(each["texts"], 20)
                    self.assertEqual(each["found"], [])


if __name__ == "__main__":
    if not BROWSER:
        print("chromium is not installed: no page was looked at")
        sys.exit(77)  # Meson's word for a skipped test
    unittest.main(argv=sys.argv[:1])
