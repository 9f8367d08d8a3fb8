import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { RecordedReview } from "#lib/recording/recorder.ts";
import { createTestFolder } from "../../test/folders.ts";
import type { StageBucket } from "../aws/bucket.ts";
import { fetchRecordingsAndCountInvalid, parseAgeToMilliseconds, parseS3Address, requireEmptyFolder } from "./fetch.ts";
import { openLocalRecordingWriter } from "./local-store.ts";

const createTarget = async () => join(await createTestFolder(), "to");

/** Builds a review that is recorded as a line of text, or fails to be recorded with an error. */
const buildReview = (lineOrError: string | Error, rule = "limit-it", cluster = "prod"): RecordedReview => ({
  origin: { rule, cluster, version: "1", at: "2026-01-01T00:00:00.000Z" },
  request: {} as RecordedReview["request"],
  mode: "enforce",
  line: async () => {
    if (lineOrError instanceof Error) throw lineOrError;
    return lineOrError;
  },
});

/** Records reviews. Returns the last sentence, such as "4 reviews recorded in FOLDER", and those reported before it. */
const record = async (folder: string, all: RecordedReview[], most = 100) => {
  const sentences: string[] = [];
  const recordings = await openLocalRecordingWriter(folder, most, (sentence) => void sentences.push(sentence));
  for (const one of all) recordings.record(one);
  return { end: await recordings.close(), sentences };
};

describe("a folder of recordings", () => {
  it("a folder of recordings has a file for each rule of each cluster, readable only by its owner", async () => {
    const to = await createTarget();
    const all = [
      buildReview("- {}\n"),
      buildReview("- {}\n", "other"),
      buildReview("- {}\n", "other", "test"),
      buildReview("- []\n"),
    ];
    assert.deepEqual(await record(to, all), { end: `4 reviews recorded in ${to}`, sentences: [] });
    assert.deepEqual((await readdir(to, { recursive: true })).sort(), [
      "prod",
      "prod/limit-it.yaml",
      "prod/other.yaml",
      "test",
      "test/other.yaml",
    ]);
    assert.equal(await readFile(join(to, "prod/limit-it.yaml"), "utf8"), "- {}\n- []\n");
    const modes = await Promise.all(
      ["", "prod", "prod/other.yaml"].map(async (path) => (await stat(join(to, path))).mode & 0o777),
    );
    assert.deepEqual(modes, [0o700, 0o700, 0o600]);
  });

  it("a folder of recordings gets further lines, after a line break if the last line is incomplete", async () => {
    const to = await createTarget();
    await mkdir(join(to, "prod"), { recursive: true });
    await writeFile(join(to, "prod/limit-it.yaml"), "- {}\n- {");
    await record(to, [buildReview("- []\n")]);
    await record(to, [buildReview("- []\n")]);
    assert.equal(await readFile(join(to, "prod/limit-it.yaml"), "utf8"), "- {}\n- {\n- []\n- []\n");
  });

  it("a folder of recordings has complete lines if several processes write to it", async () => {
    const to = await createTarget();
    const buildLine = (writer: string) => `- {"name":"${writer.repeat(300_000)}"}\n`;
    const buildReviews = (writer: string) => Array.from({ length: 12 }, () => buildReview(buildLine(writer)));
    await Promise.all(["a", "b", "c"].map((writer) => record(to, buildReviews(writer))));
    // A writer that found a half-written line starts with an empty line, which readers skip.
    const lines = (await readFile(join(to, "prod/limit-it.yaml"), "utf8")).split("\n").filter(Boolean);
    assert.equal(lines.length, 36);
    for (const line of lines) assert.ok(["a", "b", "c"].some((writer) => `${line}\n` === buildLine(writer)));
  });

  it("a folder of recordings takes a limited number of reviews of each rule, and reports this once", async () => {
    const to = await createTarget();
    const all = [..."12345"].map((digit) => buildReview(`- ${digit}\n`));
    const { end, sentences } = await record(to, [...all, buildReview("- {}\n", "other")], 2);
    assert.equal(end, `3 reviews recorded in ${to}; left out: 3 beyond 2 of a rule`);
    assert.deepEqual(sentences, ["prod/limit-it.yaml has 2 reviews, and gets no more; --most N takes more"]);
    assert.equal(await readFile(join(to, "prod/limit-it.yaml"), "utf8"), "- 1\n- 2\n");
  });

  it("reviews that can't be recorded are left out, and their number and the reasons are reported", async () => {
    const to = await createTarget();
    const large = new Error("too large");
    const { end, sentences } = await record(to, [
      buildReview(large),
      buildReview("- {}\n"),
      buildReview(large),
      buildReview(new Error("other")),
    ]);
    assert.equal(end, `1 review recorded in ${to}; left out: 2 too large, 1 other`);
    assert.deepEqual(sentences, []);
  });

  it("a folder of recordings that is deleted is reported once, and not created again", async () => {
    const to = await createTarget();
    const sentences: string[] = [];
    const recordings = await openLocalRecordingWriter(to, 10, (sentence) => void sentences.push(sentence));
    await rm(to, { recursive: true });
    for (let time = 0; time < 3; time++) recordings.record(buildReview("- {}\n"));
    assert.equal(await recordings.close(), `0 reviews recorded in ${to}; left out: 3 not written`);
    assert.equal(sentences.length, 1);
    assert.match(sentences[0] ?? "", /^.*to\/prod\/limit-it\.yaml can't be written: ENOENT/);
    await assert.rejects(stat(to), /ENOENT/);
  });

  it("a folder of recordings is refused if it can't be created", async () => {
    const to = await createTarget();
    await writeFile(to, "");
    await assert.rejects(
      openLocalRecordingWriter(to, 1, () => {}),
      { message: new RegExp(`^--to ${to} can't be made: EEXIST`) },
    );
  });

  it("a folder of recordings keeps a limited number of bytes in memory, and leaves out further reviews", async () => {
    const small = await createTarget();
    const many = Array.from({ length: 10_000 }, (_, index) => buildReview("- {}\n", `rule-${index % 3}`));
    assert.equal((await record(small, many, 10_000)).end, `10000 reviews recorded in ${small}`);
    const large = await createTarget();
    const request: object = { object: "x".repeat(4 * 1024 * 1024) };
    const largeReviews = Array.from({ length: 10 }, () => ({
      ...buildReview("- {}\n"),
      request: request as RecordedReview["request"],
    }));
    // The queue has room for 32 Mi characters, and so for 7 of these reviews of a little more than 4 Mi.
    const { end } = await record(large, largeReviews);
    assert.equal(end, `7 reviews recorded in ${large}; left out: 3 too many at once`);
  });

  it("recordings are written after the review is answered, even if the review's size can't be computed", async () => {
    const to = await createTarget();
    const deep = JSON.parse("[".repeat(200_000) + "]".repeat(200_000));
    let isAnswered = false;
    const line = async () => {
      assert.ok(isAnswered);
      return "- {}\n";
    };
    const recordings = await openLocalRecordingWriter(to, 10, () => {});
    recordings.record({ ...buildReview(""), line, request: { object: deep } as RecordedReview["request"] });
    await Promise.resolve();
    isAnswered = true;
    assert.equal(await recordings.close(), `1 review recorded in ${to}`);
  });

  it("at most 20 reasons for which reviews are left out are counted separately", async () => {
    const to = await createTarget();
    const all = Array.from({ length: 100 }, (_, index) => buildReview(new Error(`it\u001b has ${index} bytes`)));
    const { end } = await record(to, all);
    assert.match(end, /; left out: 1 it\? has 0 bytes, /);
    assert.equal(end.split(", ").length, 21, "20 reasons and the rest");
    assert.match(end, /, 80 for other reasons$/);
  });

  it("a folder of recordings is reported once if the disk is full", {
    skip: existsSync("/dev/full") ? false : "there is no /dev/full",
  }, async () => {
    const to = await createTarget();
    await mkdir(join(to, "prod"), { recursive: true });
    await symlink("/dev/full", join(to, "prod/limit-it.yaml"));
    const all = [buildReview("- {}\n"), buildReview("- {}\n", "other"), buildReview("- {}\n")];
    const { end, sentences } = await record(to, all);
    assert.equal(end, `1 review recorded in ${to}; left out: 2 not written`);
    assert.match(sentences.join(), /^[^,]*limit-it\.yaml can't be written: ENOSPC[^,]*, write$/);
  });
});

describe("recordings in a bucket", () => {
  const printLine = (origin: object) => `- ${JSON.stringify({ name: "a", recorded: origin })}\n`;
  const good = printLine({ rule: "limit-it", cluster: "prod" });
  const onDay = (day: number) => new Date(Date.UTC(2026, 0, day));
  const objects: Record<string, { text: string; modified?: Date; bytes?: number }> = {
    "a/1.yaml": { text: good, modified: onDay(1) },
    "a/2.yaml": { text: good, modified: onDay(3) },
    "a/3.yaml": { text: printLine({ rule: "../x", cluster: "prod" }) },
    "a/4.yaml": { text: printLine({ rule: "limit-it", cluster: ".." }) },
    "a/5.yaml": { text: `${good}${good}` },
    "a/6.yaml": { text: "- {nonsense}\n" },
    "a/7.json": { text: good },
    "a/8.yaml": { text: good, bytes: 3e9 },
    "a/9.yaml": { text: good.replace("\n", "") },
    ...Object.fromEntries(
      Array.from({ length: 40 }, (_, index) => [
        `b/${index}.yaml`,
        { text: printLine({ rule: `rule-${index % 3}`, cluster: "test" }) },
      ]),
    ),
    "c.yaml": { text: good },
  };
  const read: string[] = [];
  const bucket: Pick<StageBucket, "list" | "read"> = {
    list: async function* (prefix) {
      for (const [key, { text, modified = onDay(2), bytes = text.length }] of Object.entries(objects))
        if (key.startsWith(prefix)) yield { key, modified, bytes };
      if (prefix === "c") yield { key: "c/gone.yaml", modified: onDay(2), bytes: 100 };
    },
    read: async (key) => {
      read.push(key);
      const text = objects[key]?.text;
      return text === undefined ? undefined : { text, etag: "", modified: onDay(2), age: 0 };
    },
  };
  const fetchInto = async (prefix: string, since = onDay(1)) => {
    const to = await createTarget();
    const recordings = await openLocalRecordingWriter(to, 1000, () => {});
    const invalid = await fetchRecordingsAndCountInvalid(bucket, prefix, since, recordings);
    return { invalid, end: (await recordings.close()).replace(` in ${to}`, ""), to };
  };

  it("recordings in a bucket are fetched, and other objects of the bucket are not", async () => {
    const { invalid, end, to } = await fetchInto("a/");
    assert.deepEqual([invalid, end], [7, "2 reviews recorded"]); // a/3 to a/9 are invalid
    assert.equal(await readFile(join(to, "prod/limit-it.yaml"), "utf8"), good + good);
    assert.ok(!read.includes("a/8.yaml"), "it is too large and must not be read");
  });

  it("recordings in a bucket are fetched from a given time on, and below a prefix", async () => {
    assert.equal((await fetchInto("a/", onDay(3))).end, "1 review recorded");
    assert.deepEqual((await fetchInto("b/")).end, "40 reviews recorded");
    assert.deepEqual((await readdir(join((await fetchInto("")).to))).sort(), ["prod", "test"]);
  });

  it("recordings in a bucket are fetched even if a lifecycle rule deletes some of them meanwhile", async () => {
    const { invalid, end } = await fetchInto("c");
    assert.deepEqual([invalid, end], [0, "1 review recorded"]);
    assert.ok(read.includes("c/gone.yaml"));
  });

  it("recordings in a bucket are fetched only into an empty folder", async () => {
    const to = await createTarget();
    await requireEmptyFolder(to);
    await mkdir(join(to, "prod"), { recursive: true });
    await assert.rejects(requireEmptyFolder(to), {
      message: `--to ${to} is not empty; what is fetched goes into a folder of its own`,
    });
    await chmod(to, 0o700);
  });

  const addresses: [address: string, expected: unknown][] = [
    ["s3://reviews", { bucket: "reviews", prefix: "" }],
    ["s3://reviews/", { bucket: "reviews", prefix: "" }],
    ["s3://re.vi-ews/a/b", { bucket: "re.vi-ews", prefix: "a/b" }],
  ];
  for (const [address, expected] of addresses)
    it(`may be at ${address}`, () => assert.deepEqual(parseS3Address(address), expected));
  for (const address of ["reviews", "s3:/reviews", "s3://", "s3://A/b", "s3://ab", "https://a.example"])
    it(`can't be at ${address}`, () =>
      assert.throws(() => parseS3Address(address), {
        message: `--from takes s3://BUCKET or s3://BUCKET/PREFIX, not "${address}"; the name of a bucket has 3 to 63 lower-case letters, digits, dots and hyphens`,
      }));
  it("recordings in a bucket may be limited by age", () => {
    assert.deepEqual(["90m", "24h", "7d"].map(parseAgeToMilliseconds), [5_400_000, 86_400_000, 604_800_000]);
    for (const wrong of ["", "0h", "1", "h", "1w", "-1h", "123456m"])
      assert.throws(() => parseAgeToMilliseconds(wrong), {
        message: `--since takes a time such as 90m, 24h or 7d, not "${wrong}"`,
      });
  });
});
