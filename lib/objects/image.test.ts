import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readRows } from "../../test/rows.ts";
import { formatImage, parseImage } from "./image.ts";

const rows = readRows<{
  references: { text: string; registry: string; repository: string; tag?: string; digest?: string }[];
  invalid: string[];
}>(import.meta.filename);

const sha256 = `sha256:${"0af9".repeat(16)}`;
const [longPath, longTag] = [`${"a/".repeat(127)}a`, "t".repeat(128)];
const sha512 = `sha512:${"0".repeat(128)}`;

describe("an image reference", () => {
  const longReferences = [
    { text: `nginx@${sha512}`, registry: "docker.io", repository: "library/nginx", tag: undefined, digest: sha512 },
    { text: `${longPath}:${longTag}`, registry: "docker.io", repository: longPath, tag: longTag, digest: undefined },
  ];
  for (const { text, registry, repository, tag, digest } of [...rows.references, ...longReferences])
    it(`reads ${text.slice(0, 60)}`, () => assert.deepEqual(parseImage(text), { registry, repository, tag, digest }));

  for (const text of [...rows.invalid, `a:${longTag}t`, `${longPath}/a`])
    it(`is not ${JSON.stringify(text.slice(0, 60))}`, () => assert.equal(parseImage(text), undefined));

  /** A part of a random image reference. */
  const piece = fc.oneof(
    fc.constantFrom(
      "a",
      "B",
      "0",
      "-",
      "--",
      "_",
      "__",
      ".",
      "/",
      ":",
      "@",
      "localhost",
      "docker.io",
      "ghcr.io",
      sha256,
      "[::1]",
    ),
    fc.string({ unit: "binary" }),
  );
  const text = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(""));

  it("an image reference has the same parts after it is formatted and parsed again", () => {
    fc.assert(
      fc.property(text, (value) => {
        const image = parseImage(value);
        if (image) assert.deepEqual(parseImage(formatImage(image)), image);
      }),
      { numRuns: 5000 },
    );
  });

  it("an image reference is parsed in linear time, even if long and malformed", () => {
    const unit = fc.constantFrom(
      "a",
      "-",
      "a-",
      "a.",
      "a_",
      "__",
      "a/",
      "/",
      ":",
      "a:",
      "@",
      "A",
      "[",
      "[:",
      "0".repeat(64),
      "\u0000",
      "é",
    );
    fc.assert(
      fc.property(
        unit,
        unit,
        fc.constantFrom(300, 1_000_000),
        fc.constantFrom("", "!", "/a", ":a", "@"),
        (first, second, times, end) => {
          const hostile = first.repeat(times) + second.repeat(times) + end;
          const start = performance.now();
          parseImage(hostile);
          assert.ok(performance.now() - start < 5000, "with backtracking, it takes minutes");
        },
      ),
      { numRuns: 200 },
    );
  });
});
