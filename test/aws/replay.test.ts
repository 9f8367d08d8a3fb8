import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync } from "node:fs";
import { chmod, mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { formatRecording } from "#lib/recording/case-line.ts";
import type { Case } from "#lib/recording/recording.ts";
import { createStageLogReader } from "../../infra/aws/log-queries.ts";
import {
  applyCaseSettingsAndVariant,
  buildReview,
  evaluateCase,
  getCasePhase,
  readCases,
} from "../../infra/catalogue/cases.ts";
import { type CatalogueRule, readCatalogue } from "../../infra/catalogue/registry.ts";
import type { ParsedOptions } from "../../infra/cli/command.ts";
import { type Checkout, openCheckout, type ProgramOutput, runProgram } from "../checkout.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { type Account, openAccount } from "./account.ts";

// Runs `postern replay` with recorded reviews, in a checkout with its own git history.
const withGit = await needs("git");
let checkout: Checkout;

/** The folder for temporary files. It must be empty after each run of a command. */
let temporaryFolder = "";

const buildRule = (body: string, { settings = "", head = "" } = {}) => `
import { rule } from "#lib/rule.ts";
${head}
type Note = { metadata?: { name?: string; labels?: Record<string, string> }; data?: Record<string, string> };
export default rule({
  summary: "Looks at notes.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],
  ${settings}
  ${body}
});
`;
const buildOwnerRule = (sentence: string) =>
  buildRule(`validate(note: Note) { if (!note.metadata?.labels?.owner) return "${sentence}"; },`);
const buildStampRule = (stamp: string) =>
  buildRule("mutate(note: Note, { settings }) { note.data = { ...note.data, stamp: settings.stamp }; },", {
    settings: `settings: { stamp: "${stamp}" },`,
  });
const buildLimitRule = (code: string) =>
  buildRule(`async validate(note: Note, { user, limit }) { ${code} },`, {
    settings: 'needs: { user: accessReview(), limit: get("limitranges") },',
    head: 'import { accessReview, get } from "#lib/needs.ts";',
  });
// A rule's source must not name `process` as a global, so this source gets it by a constructor.
const buildNoteRule = (code: string) =>
  buildRule(`validate(note: Note) { ${code} },`, {
    head: `const process = Object.constructor("return process")();
      const { writeFileSync } = process.getBuiltinModule("node:fs");`,
  });

/**
 * Code of a rule that loops forever, ends its process or reads a secret, depending on the name of the note (ConfigMap)
 * in a review. This must not affect the reviews of other notes. Before it loops, it writes the id of its process to a
 * file in the replay's own folder: a test reads the file, and requires that an interrupted replay ends this process.
 */
const harmfulCode = `
    const name = note.metadata?.name;
    const replayFolder = process.argv[2];
    if (name === "endless") writeFileSync(\`\${replayFolder}/endless\`, String(process.pid));
    while (name === "endless");
    if (name === "ending") process.exit(7);
    if (name === "curious") return process.env.AWS_SECRET_ACCESS_KEY;`;

const cases = "- name: takes a note\n  validate: { metadata: { labels: { owner: jane } } }\n  admitted: true\n";
const buildStampCases = (stamp: string) =>
  `- name: stamps a note\n  mutate: {}\n  becomes: { data: { stamp: ${stamp} } }\n`;

/** Returns a recorded review of a note, as a case on one line. */
const buildRecording = (
  rule: string,
  name: string,
  { cluster = "prod", labels = {}, mutates = false, ...fields }: { [key: string]: unknown } = {},
) => {
  const metadata = { name, namespace: "shop", labels };
  const note = { apiVersion: "v1", kind: "ConfigMap", metadata, data: { text: "hello" } };
  const kind = { group: "", version: "v1", kind: "ConfigMap" };
  const resource = { group: "", version: "v1", resource: "configmaps" };
  const request = { kind, resource, requestKind: kind, requestResource: resource, name, options: null };
  return `- ${JSON.stringify({
    name: `is asked about CREATE ConfigMap shop/${name}`,
    [mutates ? "mutate" : "validate"]: note,
    operation: "CREATE",
    resource: "configmaps",
    namespace: "shop",
    user: { username: "jane" },
    dryRun: false,
    now: "2026-11-20T10:00:00Z",
    request,
    admitted: true,
    ...fields,
    recorded: { rule, cluster, version: "local", at: "2026-11-20T10:00:00Z" },
  })}\n`;
};
const buildStampRecording = (name: string, stamp: string) => {
  const { admitted: _, ...entry } = JSON.parse(buildRecording("stamp-notes", name, { mutates: true }).slice(2));
  return `- ${JSON.stringify({ ...entry, becomes: { ...entry.mutate, data: { text: "hello", stamp } } })}\n`;
};
/** Returns the fields of a recorded review that the rule refused. */
const expectRefusal = (sentence: string) => ({ admitted: undefined, refused: sentence });

const runGit = (...words: string[]) =>
  promisify(execFile)("git", ["-c", "user.name=Jane", "-c", "user.email=jane@example.com", ...words], {
    cwd: checkout.folder,
    env: { ...process.env, GIT_CONFIG_GLOBAL: "/dev/null", GIT_COMMITTER_DATE: "2026-11-20T10:00:00Z" },
  });

before(async () => {
  if (withGit.skip) return;
  [checkout, temporaryFolder] = await Promise.all([openCheckout(), mkdtemp(join(tmpdir(), "postern-replayed-"))]);
  await checkout.write(".gitignore", "node_modules\n.postern\nrecordings\ndist\nbuilt\nold\nempty\nbroken\n");
  await checkout.rule("require-owner", buildOwnerRule("metadata.labels.owner must be set"), cases);
  await checkout.rule("stamp-notes", buildStampRule("one"), buildStampCases("one"));
  await checkout.rule("read-limits", buildNoteRule(""), cases);
  await checkout.rule("spin-notes", buildNoteRule(""), cases);
  await checkout.rule("leave-notes", buildNoteRule(""), cases);
  await checkout.rule("warn-notes", buildNoteRule('return "notes are out";'), cases);
  // The commit "one" is the earlier version of the rules. Like an old Postern, its `build` has no option --to.
  const buildSource = await readFile(join(checkout.folder, "infra/commands/build.ts"), "utf8");
  await checkout.write("infra/commands/build.ts", buildSource.replace("    to: {", "    into: {"));
  const names = ["require-owner", "stamp-notes", "read-limits", "spin-notes", "leave-notes", "warn-notes"];
  const rules = names.map((name) => `  ${name}: {}\n`).join("");
  await checkout.write("postern.yaml", `rules:\n${rules}clusters: { prod: {}, test: {} }\n`);
  await runGit("init", "--quiet", "--initial-branch=main");
  await runGit("add", ".");
  await runGit("commit", "--quiet", "--message=one");
  await runGit("tag", "one");
  // The commit "empty" has no files, and so no postern.yaml: the hash is that of an empty tree.
  const { stdout: emptyCommit } = await runGit(
    "commit-tree",
    "-m",
    "empty",
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
  );
  await runGit("branch", "empty", emptyCommit.trim());
  // The packages of the commit "locked" can't be installed, because its package-lock.json is invalid.
  await checkout.write("package-lock.json", "{}");
  await runGit("add", "package-lock.json");
  await runGit("commit", "--quiet", "--message=locked");
  await runGit("tag", "locked");
  // The last commit of the branch "main" can't be built, because a rule has no rule.ts. Like some commits of
  // users, it contains a link node_modules.
  await runGit("rm", "--quiet", "package-lock.json");
  await rm(join(checkout.folder, "functions/require-owner/rule.ts"));
  await runGit("add", "--force", "node_modules");
  await runGit("commit", "--quiet", "--all", "--message=broken");
  // The folder "old" is another checkout, of the commit "one".
  await runGit("worktree", "add", "--quiet", "old", "one");
  await symlink(join(checkout.folder, "node_modules"), join(checkout.folder, "old/node_modules"));

  // The working tree has the later version of the rules.
  await checkout.write("infra/commands/build.ts", buildSource);
  await checkout.rule("require-owner", buildOwnerRule("metadata.labels must name an owner"), cases);
  await checkout.rule("stamp-notes", buildStampRule("two"), buildStampCases("two"));
  // The later version of read-limits asks for answers that aren't recorded: for the note "l", a LimitRange; for other
  // notes, the rights of a user.
  const codeWithReads = `
    if (note.metadata?.name === "l" && (await limit({ name: "max", namespace: "shop" }))) return;
    const review = await user({ user: { username: "jane" }, verb: "get", resource: "pods" });
    if (!review.allowed) return "no";`;
  await checkout.rule("read-limits", buildLimitRule(codeWithReads), cases);
  await checkout.rule("spin-notes", buildNoteRule(harmfulCode), cases);
  await rm(join(checkout.folder, "functions/leave-notes"), { recursive: true });
  const changedRules = rules.replace("  leave-notes: {}\n", "").replace("warn-notes: {}", "warn-notes: { mode: warn }");
  const group = "groups: { all-notes: [stamp-notes] }\n";
  await checkout.write(
    "postern.yaml",
    `rules:\n${changedRules}clusters: { prod: {}, test: { rules: { spin-notes: { mode: off } } } }\n${group}`,
  );
});
after(async () => {
  await checkout?.remove();
  if (temporaryFolder) await rm(temporaryFolder, { recursive: true, force: true });
});

/** Runs `postern replay`, and asserts that it leaves no temporary files. */
const replay = async (...words: string[]): Promise<ProgramOutput> => {
  const output = await checkout.postern({ TMPDIR: temporaryFolder, AWS_SECRET_ACCESS_KEY: "hush" }, "replay", ...words);
  assert.deepEqual(await readdir(temporaryFolder), [], "something is left behind");
  return output;
};
const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};
/** Runs postern of this working tree. */
const runPostern = (...words: string[]): Promise<ProgramOutput> =>
  runProgram([fileURLToPath(new URL("../../infra/main.ts", import.meta.url)), ...words], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, TMPDIR: temporaryFolder },
  });
const writeRecordings = (text: string, path = "recordings/notes.yaml") => checkout.write(path, text);

/** Evaluates a case, and returns the arguments with which `formatRecording` formats it as a recorded review. */
const evaluateForRecording = async (
  listed: CatalogueRule,
  entry: Case,
): Promise<Parameters<typeof formatRecording>> => {
  const { name, rule } = listed;
  const { needs = {}, variant, kubernetes, now = "2026-01-01" } = entry;
  const review = buildReview(listed, entry);
  const { settings } = applyCaseSettingsAndVariant(rule, entry);
  const context = { name, mode: "enforce" as const, settings, variant, kubernetes, now: new Date(now) };
  const decision = await evaluateCase(listed, entry, review);
  const evaluation = { rule, phase: getCasePhase(entry), request: review.request, context, decision };
  const recorded = { rule: name, cluster: "local", version: "local", at: "2026-11-20T10:00:00Z" };
  return [{ ...evaluation, needs: rule.needs && needs }, recorded];
};

describe("a replay", withGit, () => {
  it("a replay finds no difference if the rules of a commit answer as recorded", async () => {
    const file = await writeRecordings(
      [
        buildRecording("require-owner", "a", expectRefusal("metadata.labels.owner must be set")),
        buildRecording("require-owner", "b", { labels: { owner: "jane" } }),
        buildStampRecording("c", "one"),
        buildRecording("warn-notes", "d", expectRefusal("notes are out")),
      ].join(""),
    );
    const { code, stdout, stderr } = await replay(file, "--with", "one");
    assert.deepEqual([code, stderr, stdout], [0, "", "4 reviews: 4 alike\n"]);
  });

  it("a replay lists by rule how the answers of another checkout and of the working tree differ", async () => {
    await writeRecordings(
      buildRecording("require-owner", "a", expectRefusal("anything")) +
        buildRecording("require-owner", "b", { labels: { owner: "jane" } }),
      "recordings/all/prod/require-owner.yaml",
    );
    await writeRecordings(buildStampRecording("c", "one"), "recordings/all/prod/stamp-notes.yaml");
    const reads = [{ group: "", resource: "limitranges", namespace: "shop", name: "min" }];
    await writeRecordings(
      buildRecording("read-limits", "d") + buildRecording("read-limits", "l", { needs: { reads } }),
      "recordings/all/prod/read-limits.yaml",
    );
    await writeRecordings(
      buildRecording("spin-notes", "e") +
        buildRecording("spin-notes", "endless") +
        buildRecording("spin-notes", "f", { cluster: "test" }) +
        buildRecording("spin-notes", "g", { cluster: "nowhere" }),
      "recordings/all/prod/spin-notes.yaml",
    );
    await writeRecordings(buildRecording("leave-notes", "h"), "recordings/all/test/leave-notes.yaml");
    await writeRecordings(
      buildRecording("warn-notes", "i", expectRefusal("notes are out")),
      "recordings/all/test/warn-notes.yaml",
    );
    await writeRecordings('- {"name": 1}\n', "recordings/all/test/worn.yaml");
    const { code, stdout, stderr } = await replay("recordings/all", "--against", "old", "--seconds", "5");
    assert.equal(stderr, "recordings/all/test/worn.yaml:1 is no case: name must be a text\n");
    assert.equal(
      stdout,
      `leave-notes
  is asked about CREATE ConfigMap shop/h recordings/all/test/leave-notes.yaml:1
    - old: allowed
    + working-tree doesn't have the rule, or has it turned off everywhere
read-limits
  is asked about CREATE ConfigMap shop/d recordings/all/prod/read-limits.yaml:1
    could not be replayed by working-tree: no answer is recorded to {"user":{"username":"jane"},"verb":"get","resource":"pods"}; add one to the case's needs
  is asked about CREATE ConfigMap shop/l recordings/all/prod/read-limits.yaml:2
    could not be replayed by working-tree: no answer is recorded to {"group":"","resource":"limitranges","namespace":"shop","name":"max"}; add one to the case's needs
require-owner
  is asked about CREATE ConfigMap shop/a recordings/all/prod/require-owner.yaml:1
    - old: denied: metadata.labels.owner must be set (403 Forbidden)
    + working-tree: denied: metadata.labels must name an owner (403 Forbidden)
spin-notes
  is asked about CREATE ConfigMap shop/endless recordings/all/prod/spin-notes.yaml:2
    could not be replayed by working-tree: it gave no answer within 5 s
  is asked about CREATE ConfigMap shop/f recordings/all/prod/spin-notes.yaml:3
    - old: allowed
    + working-tree has it off in test
stamp-notes
  is asked about CREATE ConfigMap shop/c recordings/all/prod/stamp-notes.yaml:1
    @@ -6,4 +6,4 @@ stamp-notes
        labels: {}
      data:
        text: hello
    -   stamp: one
    +   stamp: two
warn-notes
  is asked about CREATE ConfigMap shop/i recordings/all/test/warn-notes.yaml:1
    - old: denied: notes are out (403 Forbidden), in mode enforce
    + working-tree: denied: notes are out (403 Forbidden), in mode warn
11 reviews: 3 alike, 5 differ, 3 could not be replayed; 1 could not be read
`,
    );
    assert.equal(code, 1);
    assert.ok(!(await readdir(join(checkout.folder, "old"))).includes("dist"), "the other checkout isn't as it was");
  });

  it("a replay can print JSON, and can compare recorded answers with a folder that was built", async () => {
    const built = await checkout.postern({}, "build", "--to", "built");
    assert.deepEqual([built.code, built.stderr], [0, ""]);
    const recordings = [
      buildRecording("require-owner", "a", expectRefusal("metadata.labels.owner must be set")),
      buildStampRecording("c", "two"),
      buildRecording("spin-notes", "curious"),
      ...["d", "e", "f", "g"].map(() => buildRecording("spin-notes", "ending")),
    ];
    const file = await writeRecordings(recordings.join(""));
    const { code, stdout } = await replay(file, "--with", "built", "-o", "json");
    const { reviews, ...rest } = JSON.parse(stdout);
    const summary = { alike: 2, differs: 1, neither: 0, unplayed: 4, unreadable: 0, redacted: 0 };
    assert.deepEqual([code, rest], [1, { against: "recorded", with: "built", summary }]);
    const [ownerReview, ...otherReviews] = reviews;
    const { file: _, answers, ...review } = ownerReview;
    assert.deepEqual(review, {
      line: 1,
      name: "is asked about CREATE ConfigMap shop/a",
      rule: "require-owner",
      cluster: "prod",
      state: "differs",
      differs: ["message"],
      difference: [],
    });
    const denial = { verdict: "denied", code: 403, reason: "Forbidden", warnings: [], audit: {} };
    assert.deepEqual(answers, [
      { made: { ...denial, message: "metadata.labels.owner must be set" } },
      { made: { ...denial, message: "metadata.labels must name an owner" }, mode: "enforce" },
    ]);
    const faults = otherReviews.map(({ answers }: { answers: { fault?: string }[] }) => answers[1]?.fault);
    const processEnded = "its process ended with 7";
    const notCalled = "it is not asked any more, for 3 reviews ended its process";
    assert.deepEqual(faults, [processEnded, processEnded, processEnded, notCalled]);
  });

  it("`--settings recorded` replays reviews with recorded settings, and cases with their own", async () => {
    const { admitted: _, ...entry } = JSON.parse(buildRecording("stamp-notes", "a", { mutates: true }).slice(2));
    const file = await writeRecordings(
      `- ${JSON.stringify({ ...entry, settings: { stamp: "then" }, becomes: { ...entry.mutate, data: { text: "hello", stamp: "then" } } })}\n`,
    );
    const written = await checkout.write(
      "recordings/cases.yaml",
      `# As people write them.
- name: stamps a note
  mutate: &note { metadata: { name: a } }
  settings: { stamp: own }
  becomes: { metadata: { name: a }, data: { stamp: own } }
- name: stamps another
  mutate: *note
  becomes: { metadata: { name: a }, data: { stamp: own } }
`,
    );
    const words = ["--settings", "recorded", "--rules", "stamp-notes", "--with", "built"];
    const { code, stdout } = await replay(file, written, ...words);
    assert.equal(
      stdout,
      `stamp-notes
  stamps another ${written}:6
    @@ -1,4 +1,4 @@ stamp-notes
      metadata:
        name: a
      data:
    -   stamp: own
    +   stamp: two
3 reviews: 2 alike, 1 differs
`,
    );
    assert.equal(code, 1);
  });

  it("a replay reports errors in a sentence", async () => {
    const { default: command } =
      await checkout.load<typeof import("../../infra/commands/replay.ts")>("infra/commands/replay.ts");
    const file = await writeRecordings(buildRecording("spin-notes", "a"));
    const npm = await checkout.write("bin/npm", "#!/bin/sh\necho npm fails >&2\nexit 1\n");
    await chmod(npm, 0o755);
    Object.assign(process.env, { TMPDIR: temporaryFolder, PATH: `${dirname(npm)}:${process.env.PATH}` });
    const requireRefusal = async (changes: Record<string, string>, sentence: string) => {
      const usual = { against: "recorded", seconds: "10", most: "20", words: file };
      const values: Record<string, string> = { ...usual, ...changes };
      if (values.with === "built") values.with = join(checkout.folder, "built");
      const options: ParsedOptions = {
        text: (name) => values[name],
        texts: (name) => [values[name] ?? []].flat(),
        flag: () => false,
        number: (name) => Number(values[name]),
      };
      const words = values.words ? [values.words] : [];
      await assert.rejects(command.run({ options, words }), ({ message }) => {
        assert.equal(message, sentence);
        return true;
      });
    };
    for (const { given, sentence } of readRows<{ given: Record<string, string>; sentence: string }[]>(
      import.meta.filename,
    ))
      await requireRefusal(given, sentence.replace("FILE", file));
    const { stdout: lastCommit } = await runGit("rev-parse", "HEAD");
    const shallow = await checkout.write(".git/shallow", lastCommit);
    await requireRefusal(
      { with: "HEAD~9" },
      'there is no version "HEAD~9"; it can be recorded, working-tree, a commit (empty, main, locked, one) or a folder; this clone is shallow, and git fetch --unshallow brings other commits',
    );
    await rm(shallow);
    assert.deepEqual(await readdir(temporaryFolder), []);
  });

  it("a replay finds no difference if the cases of all rules are recorded and replayed", async () => {
    const lines: string[] = [];
    const catalogue = await readCatalogue();
    for (const listed of catalogue)
      for (const entry of await readCases(listed))
        lines.push(await formatRecording(...(await evaluateForRecording(listed, entry))));
    const file = await writeRecordings(lines.join(""));
    const names = catalogue.map(({ name }) => name).join(",");
    const { stdout, stderr, code } = await runPostern("replay", file, "--settings", "recorded", "--rules", names);
    assert.ok(lines.length > 900);
    const count = lines.length.toLocaleString("en-US");
    assert.deepEqual([stdout, stderr, code], [`${count} reviews: ${count} alike\n`, "", 0]);
  });

  it("a replay reports how many reviews a script decided on placeholders", async () => {
    const listed = (await readCatalogue()).find(({ name }) => name === "policy-validate");
    const scriptCase =
      listed && (await readCases(listed)).find(({ name }) => name === "refuses by a script, with its reason");
    assert.ok(listed && scriptCase);
    const withNote = {
      ...scriptCase.validate,
      metadata: { ...scriptCase.validate?.metadata, annotations: { note: "free text" } },
    };
    const cases = [scriptCase, { ...scriptCase, validate: withNote }];
    const lines = await Promise.all(
      cases.map(async (entry) => formatRecording(...(await evaluateForRecording(listed, entry)))),
    );
    const file = await writeRecordings(lines.join(""));
    const words = ["replay", file, "--settings", "recorded", "--rules", "policy-validate"];
    const { stdout, code } = await runPostern(...words);
    const sentence = "2 reviews: 2 alike; 1 evaluated on placeholders, because free text isn't recorded\n";
    assert.deepEqual([stdout, code], [sentence, 0]);
    const { summary } = JSON.parse((await runPostern(...words, "-o", "json")).stdout);
    assert.deepEqual([summary.alike, summary.redacted], [2, 1]);
  });

  it("an interrupted replay leaves no files and no process behind", async () => {
    const words = [join(checkout.folder, "infra/main.ts"), "replay", "-", "--rules", "spin-notes"];
    const child = spawn(process.execPath, words, {
      cwd: checkout.folder,
      env: { PATH: process.env.PATH, TMPDIR: temporaryFolder },
      stdio: ["pipe", "ignore", "inherit"],
    });
    const exited = once(child, "exit");
    // Standard input stays open, so the command waits for more reviews.
    child.stdin.write(buildRecording("spin-notes", "endless"));
    let pid = 0;
    await waitUntil("no rule was called in time", async () => {
      const [file] = globSync(`${temporaryFolder}/*/endless`);
      pid = file === undefined ? 0 : Number(await readFile(file, "utf8"));
      return pid > 0;
    });
    child.kill("SIGINT");
    assert.deepEqual(await exited, [130, null]);
    assert.deepEqual(await readdir(temporaryFolder), []);
    await waitUntil("the rule's process still ran after the replay", () => !isAlive(pid));
  });

  it("a replay leaves no files behind and exits with 3 if its output is closed", async () => {
    const file = await writeRecordings(buildRecording("require-owner", "a", { labels: { owner: "jane" } }));
    const child = spawn(process.execPath, [join(checkout.folder, "infra/main.ts"), "replay", file, "-o", "json"], {
      cwd: checkout.folder,
      env: { PATH: process.env.PATH, TMPDIR: temporaryFolder },
      stdio: ["ignore", "pipe", "inherit"],
    });
    child.stdout.destroy();
    assert.deepEqual(await once(child, "close"), [3, null]);
    assert.deepEqual(await readdir(temporaryFolder), []);
  });
});

const hourMilliseconds = 3_600_000;

describe("a replay with the deployed versions", await needs("git", "moto", "runtime client"), () => {
  let account: Account;
  const stage = ["--stage", "test"];
  const runInStage = (...words: string[]) => checkout.postern({ ...account.env, TMPDIR: temporaryFolder }, ...words);

  before(async () => {
    account = await openAccount();
    Object.assign(process.env, account.env);
  });
  after(() => account?.stop());

  /** Returns the number of logged reviews from the cluster prod, which include the probes that a deployment sends. */
  const countReviews = async () => {
    const query = 'filter Cluster = "prod" and Rule = "require-owner" | stats sum(Reviews) as reviews by Rule';
    const span = [new Date(Date.now() - hourMilliseconds), new Date(Date.now() + hourMilliseconds)] as const;
    const [row] = await createStageLogReader().query("/aws/lambda/postern-test", query, ...span);
    assert.ok(Number(row?.reviews) > 0);
    return row?.reviews;
  };

  it("`--against live` invokes the live versions without counting reviews, and shows the differences", async () => {
    const config = "rules: { stamp-notes: {}, require-owner: {} }\nclusters: { prod: {} }\n";
    await checkout.write("postern.yaml", `${config}groups: { all-notes: [stamp-notes] }\n`);
    const file = await writeRecordings(
      [
        buildStampRecording("a", "two"),
        buildRecording("require-owner", "b", expectRefusal("anything")),
        buildRecording("spin-notes", "c"),
      ].join(""),
    );
    const words = ["replay", file, ...stage, "--against", "live"];
    const beforeDeployment = await runInStage(...words);
    assert.deepEqual(
      [beforeDeployment.code, beforeDeployment.stderr],
      [2, "nothing was released in stage test yet; postern deploy does that\n"],
    );
    const ca = await checkout.write("ca.pem", account.ca);
    const deployed = await runInStage("deploy", ...stage, "--ca", ca, "--write", join(checkout.folder, "entries"));
    assert.equal(deployed.code, 0, deployed.stderr);
    await checkout.rule("stamp-notes", buildStampRule("three"), buildStampCases("three"));
    const before = await countReviews();
    account.recordedCalls.length = 0;
    const { code, stdout, stderr } = await runInStage(...words);
    assert.equal(
      stdout,
      `stamp-notes
  is asked about CREATE ConfigMap shop/a ${file}:1
    @@ -6,4 +6,4 @@ stamp-notes
        labels: {}
      data:
        text: hello
    -   stamp: two
    +   stamp: three
3 reviews: 1 alike, 1 differs, 1 that neither version evaluates
`,
    );
    assert.deepEqual([code, stderr], [1, ""]);
    const calls = account.recordedCalls
      .filter(({ service }) => service === "lambda")
      .map(({ action, name }) => `${action} ${name}`);
    assert.deepEqual(calls.sort(), [
      "lambda:GetAlias postern-test-all-notes",
      "lambda:GetAlias postern-test-require-owner",
      "lambda:InvokeFunction postern-test-all-notes",
      "lambda:InvokeFunction postern-test-require-owner",
    ]);
    assert.deepEqual(await countReviews(), before);
    const unknown = await runInStage("replay", file, ...stage, "--against", "r2");
    assert.deepEqual([unknown.code, unknown.stderr], [2, "there is no release r2; there are r1\n"]);
  });
});
