import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { formatImage, parseImage } from "./image.ts";

const sha256 = `sha256:${"0af9".repeat(16)}`;
const sha512 = `sha512:${"0".repeat(128)}`;

describe("an image reference", () => {
  const table: [string, registry: string, repository: string, tag?: string, digest?: string][] = [
    ["nginx", "docker.io", "library/nginx"],
    ["nginx:1.27", "docker.io", "library/nginx", "1.27"],
    [`nginx:1@${sha256}`, "docker.io", "library/nginx", "1", sha256],
    [`nginx@${sha512}`, "docker.io", "library/nginx", undefined, sha512],
    ["acme/app", "docker.io", "acme/app"],
    ["docker.io/nginx", "docker.io", "library/nginx"],
    ["index.docker.io/nginx", "docker.io", "library/nginx"],
    ["index.docker.io/acme/app", "docker.io", "acme/app"],
    ["registry-1.docker.io/nginx", "registry-1.docker.io", "nginx"],
    ["ghcr.io/acme/app:Tag_1.x-y", "ghcr.io", "acme/app", "Tag_1.x-y"],
    ["test.com:5000", "docker.io", "library/test.com", "5000"],
    ["test:5000/app", "test:5000", "app"],
    ["test:5000/app:5050", "test:5000", "app", "5050"],
    ["localhost", "docker.io", "library/localhost"],
    ["localhost/app", "localhost", "app"],
    ["local/app", "docker.io", "local/app"],
    ["Upper/app", "Upper", "app"],
    ["Docker.io/nginx", "Docker.io", "nginx"],
    ["a_b.corp/app:1", "a_b.corp", "app", "1"],
    ["192.168.1.1:5000/app", "192.168.1.1:5000", "app"],
    ["[2001:db8::1]:5000/app:tag", "[2001:db8::1]:5000", "app", "tag"],
    ["xn--n3h.com/a__b/c.d/e---f", "xn--n3h.com", "a__b/c.d/e---f"],
    [`${"a/".repeat(127)}a:${"t".repeat(128)}`, "docker.io", `${"a/".repeat(127)}a`, "t".repeat(128)],
  ];
  for (const [text, registry, repository, tag, digest] of table)
    it(`reads ${text.slice(0, 60)}`, () => assert.deepEqual(parseImage(text), { registry, repository, tag, digest }));

  const none = [
    ...["", "/", "/nginx", "nginx/", "a//b", ":tag", "nginx:", "nginx@", " nginx", "nginx\n", "a b", "ghcr.io/"],
    ...[
      "Nginx",
      "ghcr.io/Acme/app",
      "a___b",
      "a..b",
      "-a",
      "a-",
      "_a",
      "naïve",
      "https://ghcr.io/app",
      "ghcr.io/../app",
    ],
    ...[
      "a_b:5000/app",
      "A_b/app",
      "ghcr.io./app",
      "-ghcr.io/app",
      "ghcr.io:/app",
      "ghcr.io:port/app",
      "a:b:c",
      "[::1]:5000",
      "[::1%eth0]/app",
      "::1/app",
    ],
    ...["a@sha256:0af9", `a@${sha256.toUpperCase()}`, `a@${sha256}@${sha256}`, `a@md5:${"0".repeat(32)}`, `@${sha256}`],
    ...[
      "0af9".repeat(16),
      `a:${"t".repeat(129)}`,
      `${"a/".repeat(128)}a`,
      "*.corp.example/app",
      "__proto__",
      "a/constructor/__proto__",
    ],
  ];
  for (const text of none)
    it(`is not ${JSON.stringify(text.slice(0, 60))}`, () => assert.equal(parseImage(text), undefined));

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

  it("is parsed from its full form to the same parts", () => {
    fc.assert(
      fc.property(text, (value) => {
        const image = parseImage(value);
        if (image) assert.deepEqual(parseImage(formatImage(image)), image);
      }),
      { numRuns: 5000 },
    );
  });

  it("is parsed in linear time, even if long and malformed", () => {
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
          assert.ok(performance.now() - start < 5000, "it would take minutes");
        },
      ),
      { numRuns: 200 },
    );
  });
});
