import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { EndpointConfig } from "#lib/core/endpoint.ts";
import type { GroupConfig } from "#lib/core/group.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { buildBenchEndpointConfig } from "../../test/bench/handlers.ts";
import { createTestFolder } from "../../test/folders.ts";
import { createTestSigner } from "../../test/parity/test-key.ts";
import { buildPodReview } from "../../test/requests.ts";
import { type CatalogueRule, readCatalogue, readRule } from "../catalogue/registry.ts";
import { parseConfig } from "../project/project.ts";
import { buildGroupEndpointConfig, toGroupRule } from "../project/served.ts";
import { bundleRule } from "./bundle.ts";
import { getInflatedContents, readOwnZip } from "./zip.ts";

const folder = await createTestFolder();

/** Writes a rule into a folder of its own, and loads it. The rule reports its settings. */
const createTelltaleRule = async (name = "telltale", phase = "validate", extraSource = ""): Promise<CatalogueRule> => {
  const root = await createTestFolder();
  const folder = join(root, "functions", name);
  await mkdir(folder, { recursive: true });
  await symlink(fileURLToPath(new URL("../../lib", import.meta.url)), join(root, "lib"));
  await writeFile(
    join(root, "package.json"),
    '{ "name": "postern", "type": "module", "exports": { "./*": "./lib/*.ts" } }',
  );
  // `extraSource` may declare a need with the name `all`. The rule calls it if the object has the field `ask`.
  const rule = `import { cue, https, ledger, list, onlyIf } from "postern/needs";
    import { rule } from "postern/rule";
    export default rule({
      summary: "Reports its settings.",
      match: [],
      settings: { any: {} },
      ${extraSource}
      ${phase}: (object, { settings, all }) =>
        object.ask
          ? all(object.with).then((answer) => (typeof answer === "string" ? answer : undefined))
          : { audit: { settings: JSON.stringify(settings) } },
    });`;
  for (const [file, text] of Object.entries({ "rule.ts": rule, "cases.yaml": "", "README.md": "" }))
    await writeFile(join(folder, file), text);
  return readRule(folder, name);
};

const buildConfig = (settings: object): EndpointConfig => {
  return { rule: "telltale", clusters: { local: { keyVersions: [1], mode: "enforce", settings } } };
};

const review = buildPodReview({ object: {} });
/** A review for which the rule calls its need `all`. */
const askingReview = { ...review, request: { ...review.request, object: { ask: true } } };

const largeBudget = { budgetBytes: 60 * 1024 };

describe("a bundle", () => {
  const telltale = createTelltaleRule();
  const toOutputPath = (name: string) => join(folder, name);

  it("a bundle can be made of every rule of the catalogue", async () => {
    const out = toOutputPath("all");
    await Promise.all((await readCatalogue()).map((rule) => bundleRule(rule, buildBenchEndpointConfig(rule), out)));
  });

  it("a bundle passes every setting to the rule unchanged", async () => {
    const settings = JSON.parse(
      '{ "any": { "__proto__": { "polluted": true }, "constructor": 1 }, "text": "\\u2028\\u2029 \\ud800 \' \\" ` $$ \\\\ </script> é" }',
    );
    await bundleRule(await telltale, buildConfig(settings), toOutputPath("odd"), largeBudget);
    const { handler } = createRequire(import.meta.url)(toOutputPath("odd/telltale/index.cjs"));
    const { response } = await handler({ phase: "validate", cluster: "local", review }, {});
    assert.equal(response.auditAnnotations.settings, JSON.stringify(settings));
    assert.equal(Reflect.get({}, "polluted"), undefined);
  });

  it("a bundle has the same bytes in any folder", async () => {
    const firstBundle = await bundleRule(await telltale, buildConfig({}), toOutputPath("one"), largeBudget);
    const secondBundle = await bundleRule(
      await createTelltaleRule(),
      buildConfig({}),
      toOutputPath("other"),
      largeBudget,
    );
    const [first, second] = await Promise.all(
      ["one", "other"].map((name) => readFile(toOutputPath(`${name}/telltale/index.cjs`), "utf8")),
    );
    assert.equal(first, second);
    assert.deepEqual(firstBundle, secondBundle);
    for (const place of [folder, tmpdir(), process.cwd(), "node_modules", "sourceMappingURL", "@license"])
      assert.ok(!first?.includes(place), place);
  });

  it("the bundle of a rule with `since` serves clusters of all minor versions of Kubernetes", async () => {
    const since = 'since: { "1.0": { word: "old" }, "1.35": { word: "new" } },';
    const telling = await createTelltaleRule("since", "validate", since);
    const file = join(telling.folder, "rule.ts");
    // The changed rule reports its data for the cluster's minor version, `upstream`, instead of its settings.
    const source = (await readFile(file, "utf8")).replace("{ settings, all }", "{ upstream: settings, all }");
    await writeFile(file, source);
    const usual = { keyVersions: [1], mode: "enforce" as const, settings: {} };
    const config = { rule: "since", usual, clusters: { older: { ...usual, kubernetes: "1.34" } } };
    await bundleRule(telling, config, toOutputPath("minors"));
    const { handler } = createRequire(import.meta.url)(toOutputPath("minors/since/index.cjs"));
    const ask = async (cluster: string) =>
      (await handler({ phase: "validate", cluster, review }, {})).response.auditAnnotations.settings;
    assert.deepEqual([await ask("older"), await ask("any")], ['{"word":"old"}', '{"word":"new"}']);
  });

  it("the bundle of a rule with exactIntegers gets integers without rounding", async () => {
    const { publicKey, segment } = createTestSigner(1);
    process.env.POSTERN_KEYS = publicKey;
    const body = JSON.stringify(review).replace('"object":{}', '"object":{"integer":9007199254740993}');
    assert.ok(body.includes("integer"));
    const ask = async (name: string, extraSource: string) => {
      const telling = await createTelltaleRule(name, "validate", extraSource);
      const file = join(telling.folder, "rule.ts");
      const source = await readFile(file, "utf8");
      await writeFile(file, source.replace("JSON.stringify(settings)", "String(object.integer)"));
      await bundleRule(telling, { ...buildConfig({}), rule: name }, toOutputPath("exact"));
      const { handler } = createRequire(import.meta.url)(toOutputPath(`exact/${name}/index.cjs`));
      const http = { method: "POST" };
      const rawPath = `/${segment("local")}/${name}/validate`;
      const headers = { "content-type": "application/json" };
      const answer = await handler({ version: "2.0", rawPath, requestContext: { http }, headers, body }, {});
      return JSON.parse(answer.body).response.auditAnnotations.settings;
    };
    assert.equal(await ask("exact", "exactIntegers: true,"), "9007199254740993");
    assert.equal(await ask("rounding", ""), "9007199254740992");
  });

  it("a bundle is not built of a rule whose data for minor versions is not in ascending order", async () => {
    for (const since of ['{ "1.34": {} }', '{ "1.0": {}, "1.37": {}, "1.35": {} }', '{ "1.0": {}, "1.x": {} }'])
      await assert.rejects(
        createTelltaleRule("odd", "validate", `since: ${since},`),
        /since must list minor versions of Kubernetes in ascending order, beginning with "1.0"$/,
      );
  });

  it("the bundle of a group evaluates each member, and may have 3 KB more for each member", async () => {
    const members = await Promise.all(["scribe", "notary"].map((name) => createTelltaleRule(name, "mutate")));
    const group = toGroupRule({ name: "together", members });
    const match = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*" as const] }];
    const settings = Object.fromEntries(
      members.map(({ name }) => [
        name,
        { mode: "enforce" as const, settings: { any: { name } }, match, failsOpen: true, exempt: {} },
      ]),
    );
    const clusters = { local: { keyVersions: [1], mode: "enforce" as const, settings } };
    const config: GroupConfig = { rule: "together", clusters, alone: settings };
    await bundleRule(group, config, toOutputPath("together"));
    const { handler } = createRequire(import.meta.url)(toOutputPath("together/together/index.cjs"));
    const { response } = await handler({ phase: "mutate", cluster: "local", review }, {});
    assert.deepEqual(response.auditAnnotations, {
      "scribe.settings": '{"any":{"name":"scribe"}}',
      "notary.settings": '{"any":{"name":"notary"}}',
    });
    await assert.rejects(
      bundleRule(group, config, toOutputPath("narrow"), { budgetBytes: 15_000 }),
      /^Error: the group together has a bundle of \d+ bytes/,
    );
  });

  it("a bundle has another hash for other settings", async () => {
    const [first, second] = await Promise.all(
      [1, 2].map(async (any) => bundleRule(await telltale, buildConfig({ any }), toOutputPath(`${any}`), largeBudget)),
    );
    assert.notEqual(first?.hash, second?.hash);
    assert.match(first?.hash ?? "", /^[\w-]{43}$/);
  });

  it("a bundle is refused if it is larger than its budget, with the names of its largest inputs", async () => {
    const config = buildConfig({ any: { large: "x".repeat(30_000) } });
    const { bytes } = await bundleRule(await telltale, config, toOutputPath("fits"), largeBudget);
    const code = bytes - JSON.stringify(config).length;
    assert.ok(code < 24_000, "the settings are not counted");
    await assert.rejects(bundleRule(await telltale, config, toOutputPath("over"), { budgetBytes: code - 1 }), {
      name: "Error",
      message: new RegExp(
        `^${RegExp.escape((await telltale).place)} has a bundle of ${code} bytes without its settings, over its budget of ${code - 1}; the largest inputs are (\\S+ \\(\\d+\\)(, )?){3}$`,
      ),
    });
  });

  it("a bundle has no code that only entries and checks use, and none that the rule can't reach", async () => {
    const rule = await createTelltaleRule("bare", "validate", 'suggest: () => "use another name",');
    const { name } = await bundleRule(rule, buildConfig({}), toOutputPath("bare"), largeBudget);
    const code = await readFile(toOutputPath(`bare/${name}/index.cjs`), "utf8");
    assert.doesNotMatch(code, /Reports its settings|use another name|new Proxy|no answer is recorded/);
    assert.match(code, /JSON.stringify\(\w+\)/, "the code contains the rule's function");
  });

  it("the bundle of a rule that reads a cluster loads the client's Node modules at the first request", async () => {
    const asking = await createTelltaleRule("asking", "validate", 'needs: { all: list("namespaces") },');
    const credentials = { token: "t" };
    const connections = { local: { server: "https://127.0.0.1:1", credentials } };
    await bundleRule(asking, { ...buildConfig({}), rule: "asking" }, toOutputPath("asking"), {
      ...largeBudget,
      connections,
    });
    const code = await readFile(toOutputPath("asking/asking/index.cjs"), "utf8");
    assert.doesNotMatch(code, /require\("node:(https|http|zlib|tls|worker_threads)"\)|worker_threads/);
    const { handler } = createRequire(import.meta.url)(toOutputPath("asking/asking/index.cjs"));
    const { response } = await handler({ phase: "validate", cluster: "local", review }, {});
    assert.equal(response.allowed, true, "the rule did not read the cluster");
    const elsewhere = await handler({ phase: "validate", cluster: "other", review }, {});
    assert.equal(elsewhere.response.allowed, true);
    const { code: status, message } = await handler({ phase: "validate", cluster: "local", review: askingReview }, {});
    assert.equal(status, 503);
    assert.match(message, /^could not read namespaces of cluster "local": connect ECONNREFUSED 127.0.0.1:1$/);
  });

  it("the bundle of a rule whose settings exclude reads contains no client, and can't read the cluster", async () => {
    const needs = 'needs: { all: onlyIf((settings) => settings.any === "reading", list("namespaces")) },';
    const asking = await createTelltaleRule("seldom", "validate", needs);
    const setup = { keyVersions: [1], mode: "enforce" as const, settings: { any: "plain" } };
    const configs: Record<string, EndpointConfig["clusters"]> = {
      plain: { local: setup, off: { ...setup, mode: "off", settings: { any: "reading" } } },
      reading: { local: setup, other: { ...setup, settings: { any: "reading" } } },
      variant: { local: { ...setup, variants: { some: { any: "reading" } } } },
    };
    const sizes: Record<string, number> = {};
    for (const [name, clusters] of Object.entries(configs)) {
      const { bytes } = await bundleRule(asking, { rule: "seldom", clusters }, toOutputPath(name));
      sizes[name] = bytes;
    }
    assert.ok((sizes.plain ?? 0) < 28_000, `${sizes.plain} bytes`);
    assert.ok((sizes.reading ?? 0) > 30_000 && (sizes.variant ?? 0) > 30_000, JSON.stringify(sizes));
    const { handler } = createRequire(import.meta.url)(toOutputPath("plain/seldom/index.cjs"));
    const ask = (event: object) => handler({ phase: "validate", cluster: "local", review: askingReview, ...event }, {});
    const { code, message } = await ask({});
    assert.deepEqual([code, message], [503, 'nothing can be read from cluster "local": it has no connection here']);
    assert.equal((await ask({ needs: { objects: [] } })).response.allowed, true);
  });

  it("only the bundle of a rule that calls services outside the cluster contains their client", async () => {
    const object = { ask: true, with: { url: "https://127.0.0.1:1" } };
    const callingReview = { ...review, request: { ...review.request, object } };
    for (const [name, need, isOutside] of [
      ["outside", "https()", true] as const,
      ["inside", 'list("pods")', false] as const,
    ]) {
      const asking = await createTelltaleRule(name, "validate", `needs: { all: ${need} },`);
      await bundleRule(asking, { ...buildConfig({}), rule: name }, toOutputPath(name));
      const file = toOutputPath(`${name}/${name}/index.cjs`);
      assert.equal((await readFile(file, "utf8")).includes("could not ask"), isOutside);
      const { handler } = createRequire(import.meta.url)(file);
      const { message } = await handler({ phase: "validate", cluster: "local", review: callingReview }, {});
      assert.match(
        message,
        isOutside ? /^could not ask 127\.0\.0\.1:1: / : /^nothing can be listed|^nothing can be read/,
      );
    }
  });

  it("only the bundle of a rule with a ledger has its code, and opens the table of POSTERN_LEDGER", async () => {
    const keeping = await createTelltaleRule("keeping", "validate", "needs: { all: ledger() },");
    const source = await readFile(join(keeping.folder, "rule.ts"), "utf8");
    await writeFile(
      join(keeping.folder, "rule.ts"),
      source.replace("all(object.with)", 'all.change(["key"], () => [1]).then(() => {})'),
    );
    await bundleRule(keeping, { ...buildConfig({}), rule: "keeping" }, toOutputPath("keeping"));
    const { handler } = createRequire(import.meta.url)(toOutputPath("keeping/keeping/index.cjs"));
    const ask = async () => {
      const { code, message } = await handler({ phase: "validate", cluster: "local", review: askingReview }, {});
      return [code, message];
    };
    assert.deepEqual(await ask(), [503, "nothing can be kept from one review to the next: there is no ledger here"]);
    process.env.POSTERN_LEDGER = "postern-test";
    const missing = "there is no AWS identity: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set";
    assert.deepEqual(await ask(), [503, `the ledger in the table postern-test could not be used: ${missing}`]);

    const asking = await createTelltaleRule("forgetful", "validate", 'needs: { all: list("namespaces") },');
    await bundleRule(asking, { ...buildConfig({}), rule: "forgetful" }, toOutputPath("forgetful"));
    const codes = ["keeping/keeping", "forgetful/forgetful"].map((name) =>
      readFile(toOutputPath(`${name}/index.cjs`), "utf8"),
    );
    assert.deepEqual(
      (await Promise.all(codes)).map((code) => code.includes("PutItem")),
      [true, false],
    );
  });

  it("a bundle answers 400 to a review with a wrong type in a kind that its rule matches", async () => {
    const forge = (changes: object) => buildPodReview(changes as Parameters<typeof buildPodReview>[0]);
    const group = (await readCatalogue()).filter(({ name }) => /^(always-pull-images|priority)$/.test(name));
    const folder = toOutputPath("forged");
    for (const name of ["always-pull-images", "pod-security", "together"]) {
      const found = (await readCatalogue()).find((one) => one.name === name) ?? toGroupRule({ name, members: group });
      const setup = { keyVersions: [1], mode: "enforce", settings: found.rule.settings ?? {} } as const;
      const config = found.members
        ? buildGroupEndpointConfig(
            { name, members: found.members },
            parseConfig("rules: { always-pull-images: , priority: }", group),
          )
        : { rule: name, usual: setup, clusters: {} };
      await bundleRule(found, config, folder);
      const { handler } = createRequire(import.meta.url)(join(folder, name, "index.cjs"));
      const needs = { objects: [{ apiVersion: "v1", kind: "Namespace", metadata: { name: "a" } }] };
      const phase = found.phases[0];
      const spec = { containers: 1 };
      const { code, message } = await handler(
        { phase, needs, review: forge({ namespace: "a", object: { spec } }) },
        {},
      );
      assert.deepEqual([name, code], [name, 400]);
      assert.match(message, /request\.object\.spec\.containers must be a list, not a number$/);
    }
  });

  it("a bundle has the clusters' addresses in a file, which is read only by a rule that asks a cluster", async () => {
    const asking = await createTelltaleRule("reading", "validate", 'needs: { all: list("namespaces") },');
    const buildWith = (server: string, name: string) =>
      bundleRule(asking, { ...buildConfig({}), rule: "reading" }, toOutputPath(name), {
        ...largeBudget,
        connections: { local: { server, credentials: { token: "t" } } },
      });
    const [one, other] = [
      await buildWith("https://127.0.0.1:1", "here"),
      await buildWith("https://127.0.0.1:2", "there"),
    ];
    assert.deepEqual([one.hash, one.logicHash, one.bytes], [other.hash, other.logicHash, other.bytes]);
    assert.notEqual(one.codeSha256, other.codeSha256);
    const files = readOwnZip(await readFile(toOutputPath("here/reading.zip"))) ?? {};
    assert.deepEqual(Object.keys(files), ["index.cjs", "index.mjs", "keys.json", "clusters.json", "review-faults.cjs"]);
    await rm(toOutputPath("here/reading/clusters.json"));
    const { handler } = createRequire(import.meta.url)(toOutputPath("here/reading/index.cjs"));
    assert.equal((await handler({ phase: "validate", cluster: "local", review }, {})).response.allowed, true);
    assert.equal((await handler({ phase: "validate", cluster: "local", review: askingReview }, {})).code, 500);
  });

  it("a bundle loads its modules before Lambda gets its handler, and logs nothing if loading fails", async () => {
    const rule = await createTelltaleRule("warm", "validate", 'needs: { all: list("namespaces") },');
    await bundleRule(rule, { ...buildConfig({}), rule: "warm" }, toOutputPath("warm"), {
      ...largeBudget,
      connections: { local: { server: "https://127.0.0.1:1", credentials: { token: "t" } } },
    });
    const code = `const { handler } = await import(${JSON.stringify(toOutputPath("warm/warm/index.mjs"))});
      console.log(process.moduleLoadList.includes("NativeModule https"), typeof handler);`;
    const load = () => promisify(execFile)(process.execPath, ["--input-type=module", "--eval", code]);
    assert.equal((await load()).stdout, "true function\n");
    await rm(toOutputPath("warm/warm/clusters.json"));
    assert.equal((await load()).stdout, "false function\n");
  });

  it("a bundle has clusters with other key versions than 1 in a file whose hash is in the description", async () => {
    const { usual, clusters } = { usual: buildConfig({}).clusters.local, clusters: buildConfig({ any: 1 }).clusters };
    const setup = { keyVersions: [1], mode: "enforce", settings: {} } as const;
    const bundleWith = async (otherClusters: EndpointConfig["clusters"], name: string) => {
      const config = {
        ...buildConfig({}),
        ...(typeof usual === "object" && { usual }),
        clusters: { ...clusters, ...otherClusters },
      };
      const { keysHash } = await bundleRule(await telltale, config, toOutputPath(name), largeBudget);
      return { keysHash, keys: JSON.parse(await readFile(toOutputPath(`${name}/telltale/keys.json`), "utf8")) };
    };
    const raised = { b: { ...setup, keyVersions: [1, 2] }, c: { ...setup, keyVersions: [] }, d: "c", e: setup };
    const [plain, other] = [await bundleWith({}, "keys"), await bundleWith(raised, "raised")];
    assert.deepEqual([plain.keys, other.keys], [{}, { b: [1, 2], c: [], d: [] }]);
    assert.notEqual(plain.keysHash, other.keysHash);
    assert.equal((await bundleWith({ e: setup }, "usual")).keysHash, plain.keysHash);
  });

  it("a bundle of a rule that evaluates scripts contains CUE if the settings of a cluster use it", async () => {
    const needs = 'needs: { all: cue((settings) => settings.any !== "plain") },';
    const rule = await createTelltaleRule("scripted", "validate", needs);
    const buildScriptConfig = (any: string): EndpointConfig => ({ ...buildConfig({ any }), rule: "scripted" });

    const bundle = await bundleRule(rule, buildScriptConfig("scripts"), toOutputPath("scripts"));
    assert.equal(bundle.runsCue, true);
    const archive = await readFile(toOutputPath("scripts/scripted.zip"));
    assert.ok(archive.length < 6e6, `${archive.length}`);
    const files = readOwnZip(archive) ?? {};
    assert.deepEqual(Object.keys(files), [
      "index.cjs",
      "index.mjs",
      "keys.json",
      "review-faults.cjs",
      "cue-worker.cjs",
      "cue-glue.cjs",
      "cue.wasm",
    ]);
    for (const [name, file] of Object.entries(files))
      assert.ok(
        Buffer.from(getInflatedContents(file)).equals(await readFile(toOutputPath(`scripts/scripted/${name}`))),
        name,
      );
    const again = await bundleRule(rule, buildScriptConfig("scripts"), toOutputPath("scripts-again"));
    assert.equal(again.codeSha256, bundle.codeSha256);

    const { handler } = createRequire(import.meta.url)(toOutputPath("scripts/scripted/index.cjs"));
    const askingReview = { ...review, request: { ...review.request, object: { ask: true, with: "a: 6*7" } } };
    const { response } = await handler({ phase: "validate", cluster: "local", review: askingReview }, {});
    assert.deepEqual([response.allowed, response.status?.message], [false, '{"a":42}']);

    const plain = await bundleRule(rule, buildScriptConfig("plain"), toOutputPath("plain"));
    assert.equal(plain.runsCue, false);
    assert.deepEqual(Object.keys(readOwnZip(await readFile(toOutputPath("plain/scripted.zip"))) ?? {}), [
      "index.cjs",
      "index.mjs",
      "keys.json",
      "review-faults.cjs",
    ]);
  });

  it("a bundle starts CUE when it loads if every review needs CUE", async () => {
    const needs = 'needs: { all: cue(() => true, ({ any }) => any === "awaited") },';
    const rule = await createTelltaleRule("starting", "validate", needs);
    const countWorkers = async (any: string) => {
      await bundleRule(rule, { ...buildConfig({ any }), rule: "starting" }, toOutputPath(any));
      const code = `let started = 0;
        process.on("worker", () => started++).on("exit", () => console.log(started));
        require(${JSON.stringify(toOutputPath(`${any}/starting/index.cjs`))});`;
      return (await promisify(execFile)(process.execPath, ["--eval", code])).stdout;
    };
    assert.deepEqual([await countWorkers("awaited"), await countWorkers("perhaps")], ["1\n", "0\n"]);
  });

  it("a bundle that records reviews may be larger; other bundles have no code for recording", async () => {
    const recordingBuckets = { local: { telltale: { bucket: "reviews", prefix: "", share: 1 } } };
    const off = await bundleRule(await telltale, buildConfig({}), toOutputPath("silent"));
    const on = await bundleRule(await telltale, buildConfig({}), toOutputPath("recording"), {
      connections: {},
      recordingBuckets,
    });
    assert.deepEqual([off.records, on.records], [[], ["reviews/local/telltale/"]]);
    assert.ok(off.bytes <= 21 * 1024 && on.bytes > 21 * 1024 && on.bytes <= 44 * 1024, `${on.bytes}`);
    const code = await readFile(toOutputPath("silent/telltale/index.cjs"), "utf8");
    for (const word of ["redacted", "PutObject", "s3"]) assert.ok(!code.includes(word), word);
  });

  it("a bundle has code for exceptions only if a cluster, or a member of a group, has exceptions", async () => {
    const exceptions = [{ namespaces: ["legacy"], until: "2999-12-31", owner: "o", reason: "r" }];
    const build = async (name: string, config: EndpointConfig) => {
      const { bytes } = await bundleRule(await telltale, config, toOutputPath(name));
      return { bytes, code: await readFile(toOutputPath(`${name}/telltale/index.cjs`), "utf8") };
    };
    const setup = { keyVersions: [1], mode: "enforce" as const, settings: {} };
    const withoutExceptions = await build("unexcepted", { rule: "telltale", clusters: { a: setup, b: "a" } });
    assert.doesNotMatch(withoutExceptions.code, /exception/);
    const withExceptions = await build("excepted", {
      rule: "telltale",
      clusters: { a: setup, b: { ...setup, exceptions } },
    });
    assert.ok(
      withExceptions.bytes - withoutExceptions.bytes < 1024,
      `${withExceptions.bytes - withoutExceptions.bytes}`,
    );
    const { handler } = createRequire(import.meta.url)(toOutputPath("excepted/telltale/index.cjs"));
    const ask = async (cluster: string, namespace: string) => {
      const review = buildPodReview({ namespace, object: {} });
      return (await handler({ phase: "validate", cluster, review }, {})).response.auditAnnotations;
    };
    assert.deepEqual(await ask("b", "legacy"), { exception: "until 2999-12-31 (o): r" });
    assert.deepEqual(await ask("b", "shop"), { settings: "{}" });
    assert.deepEqual(await ask("a", "legacy"), { settings: "{}" });
  });

  it("a bundle loads only the modules of Node that it needs", async () => {
    await bundleRule(await telltale, buildConfig({}), toOutputPath("lean"), largeBudget);
    const code = await readFile(toOutputPath("lean/telltale/index.cjs"), "utf8");
    assert.deepEqual([...new Set(Array.from(code.matchAll(/require\("([^"]+)"\)/g), ([, name]) => name))].sort(), [
      "./review-faults.cjs",
      "node:buffer",
      "node:crypto",
      "node:fs",
      "node:timers",
    ]);
  });

  it("a bundle names the secrets and parameters of tokens and keys for each cluster where its rule is on", async () => {
    const image = await readRule(
      fileURLToPath(new URL("../../functions/image-policy-webhook", import.meta.url)),
      "images",
    );
    const buildSettings = (settings: object) =>
      mergeWithDefaults(image.rule.settings ?? {}, { backend: { url: "https://a.example", ...settings } });
    const buildCluster = (settings: object, mode: "enforce" | "off" = "enforce") => {
      return { keyVersions: [1], mode, settings: buildSettings(settings) };
    };
    const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:images-AbCdEf";
    const clientArn = "arn:aws:ssm:eu-west-1:123456789012:parameter/client";
    const clusters = {
      one: buildCluster({ tokenSecret: arn }),
      two: buildCluster({ tokenParameter: "/images", region: "us-east-1" }),
      same: buildCluster({ tokenSecret: arn, region: "us-east-1" }),
      without: buildCluster({}),
      withClient: buildCluster({ clientCertificate: "-----BEGIN CERTIFICATE-----", clientKey: clientArn }),
      off: buildCluster({ tokenSecret: "other", region: "us-east-1" }, "off"),
    };
    const { tokens } = await bundleRule(image, { rule: "images", clusters }, toOutputPath("images"));
    assert.deepEqual(tokens, [
      { secret: arn, region: "eu-west-1" },
      { parameter: "/images", region: "us-east-1" },
      { parameter: clientArn, region: "eu-west-1" },
    ]);
    const here = { local: buildCluster({ tokenFile: "/run/token" }) };
    await assert.rejects(bundleRule(image, { rule: "images", clusters: here }, toOutputPath("images")), {
      message:
        "images needs /run/token, which functions on Lambda don't have; store its content in Secrets Manager or SSM, and name the ARN instead",
    });
  });

  it("a bundle of a group has the rights of each member that is on", async () => {
    const rules = ["initial-resources", "persistent-volume-label"].map((name) =>
      readRule(fileURLToPath(new URL(`../../functions/${name}`, import.meta.url)), name),
    );
    const members = await Promise.all(rules);
    const [history, volumes] = members.map(({ rule }) => rule.settings ?? {});
    const prometheus = { url: "https://a.example", tokenSecret: "metrics", region: "eu-west-1" };
    const share = (mode: "enforce" | "off"): GroupConfig => {
      const common = { match: [], failsOpen: true, exempt: {} };
      const settings = {
        "initial-resources": { mode, settings: mergeWithDefaults(history ?? {}, { prometheus }), ...common },
        "persistent-volume-label": { mode: "enforce" as const, settings: volumes ?? {}, ...common },
      };
      return { rule: "both", alone: settings, clusters: { local: { keyVersions: [1], mode: "enforce", settings } } };
    };
    const on = await bundleRule(toGroupRule({ name: "both", members }), share("enforce"), toOutputPath("rights"));
    assert.deepEqual([on.tokens, on.actions], [[{ secret: "metrics", region: "eu-west-1" }], ["ec2:DescribeVolumes"]]);
    assert.deepEqual(
      (await bundleRule(toGroupRule({ name: "both", members }), share("off"), toOutputPath("rights"))).tokens,
      [],
    );
  });
});
