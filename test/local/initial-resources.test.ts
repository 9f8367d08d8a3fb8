import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, describe, it } from "node:test";
import fc from "fast-check";
import { createLiveCapabilities } from "#lib/cluster/live.ts";
import { evaluateRule } from "#lib/decide.ts";
import { Failure } from "#lib/failure.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import { readAnswer } from "../../functions/initial-resources/history.ts";
import initialResources from "../../functions/initial-resources/rule.ts";
import { patched } from "../../infra/catalogue/case-differences.ts";
import { openCertificate } from "../../infra/keys/keys.ts";

/** What a query asks for, as far as a Prometheus of five lines tells. */
interface Question {
  resource: "cpu" | "memory";
  /** The image label, tried out on what runtimes report. */
  fits(image: string): boolean;
  isSameTag: boolean;
  namespace: string | undefined;
  days: number;
}

describe("a Prometheus with the history of images", () => {
  let folder: string;
  let backend: { url: string; ca: string };
  let world: ReturnType<typeof createLiveCapabilities>;
  const asked: Question[] = [];
  let answer: (question: Question) => object | number;

  const read = (query: string): Question => {
    const [, metric, label = '""', namespace, range, days] =
      /(container_\w+)\{image=~("(?:[^"\\]|\\.)*")(?:,namespace=("(?:[^"\\]|\\.)*"))?\}(\[5m\]\))?\[(\d+)d:10m\]/.exec(
        query,
      ) ?? [];
    assert.ok(metric && days, query);
    assert.equal(range !== undefined, metric === "container_cpu_usage_seconds_total");
    const pattern: string = JSON.parse(label);
    return {
      resource: range ? "cpu" : "memory",
      fits: (image) => new RegExp(`^(?:${pattern})$`).test(image),
      isSameTag: !pattern.endsWith("(?:[:@].*)?"),
      namespace: namespace && JSON.parse(namespace),
      days: Number(days),
    };
  };
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "https://prometheus");
    assert.equal(pathname, "/prometheus/api/v1/query");
    const question = read(searchParams.get("query") ?? "");
    asked.push(question);
    const said = answer(question);
    if (typeof said === "number")
      response.writeHead(said).end('{"status": "error", "errorType": "execution", "error": "query timed out"}');
    else response.end(JSON.stringify({ status: "success", data: { resultType: "vector", result: said } }));
  });
  const found = (samples: number, usage: number | string) => [
    { metric: { is: "usage" }, value: [1.5, `${usage}`] },
    { metric: { is: "samples" }, value: [1.5, `${samples}`] },
  ];

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-history-"));
    const own = await openCertificate(folder, "127.0.0.1");
    server.setSecureContext({ key: own.key, cert: own.cert });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    // Listening on a port, it has one.
    backend = { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/prometheus/`, ca: own.ca };
  });
  beforeEach(() => {
    asked.length = 0;
    world = createLiveCapabilities({});
  });
  after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(folder, { recursive: true, force: true });
  });

  const judge = async (spec: object, settings: object = {}) => {
    const object = { metadata: { name: "a" }, spec };
    const request: AdmissionRequest = {
      uid: "u",
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      name: "a",
      namespace: "shop",
      operation: "CREATE",
      userInfo: {},
      object,
    };
    const { outcome } = await evaluateRule(initialResources, "mutate", request, {
      name: "initial-resources",
      mode: "enforce",
      settings: mergeWithDefaults(
        initialResources.settings ?? {},
        mergeWithDefaults({ prometheus: backend }, settings),
      ),
      now: new Date(),
      world: world("local", 5000),
    });
    return { pod: patched(object, outcome) as typeof object, audit: outcome.audit };
  };
  const one = { containers: [{ name: "c", image: "shop/app:1" }] };
  const requested = async (settings: object = {}, spec: object = one) => {
    const { containers } = Object((await judge(spec, settings)).pod.spec);
    return containers[0].resources?.requests;
  };
  const stages = (resource: string) =>
    asked
      .filter((question) => question.resource === resource)
      .map(({ days, isSameTag, namespace }) =>
        [days, isSameTag ? "tag" : "image", namespace ?? "everywhere"].join(" "),
      );

  it("is asked for the last week of the namespace first, and no further where that is enough", async () => {
    answer = ({ resource }) => found(30, resource === "cpu" ? 0.2501 : 104_857_600);
    assert.deepEqual(await requested(), { cpu: "251m", memory: "104857600" });
    assert.deepEqual(stages("cpu"), ["7 tag shop"]);
    assert.deepEqual(stages("memory"), ["7 tag shop"]);
  });
  it("is asked for more where samples are too few, and for other tags last", async () => {
    answer = () => found(29, 1);
    assert.deepEqual(await requested(), { cpu: "1", memory: "1" });
    assert.deepEqual(stages("cpu"), ["7 tag shop", "30 tag shop", "30 image shop"]);
  });
  it("is asked for all namespaces where the settings let it", async () => {
    answer = ({ isSameTag }) => (isSameTag ? [] : found(1, 2_000_000));
    assert.equal((await requested({ namespaceOnly: false })).memory, "2M");
    const everywhere = ["7 tag everywhere", "30 tag everywhere", "30 image everywhere"];
    assert.deepEqual(stages("memory"), ["7 tag shop", "30 tag shop", ...everywhere]);
  });
  it("counts by its last answer", async () => {
    answer = ({ days }) => (days === 7 ? found(29, 5) : []);
    assert.equal(await requested(), undefined);
  });
  it("gives nothing where there is no number", async () => {
    answer = () => found(0, "NaN");
    assert.equal(await requested(), undefined);
  });
  it("is asked once for an image that several containers have, and again only minutes later", async () => {
    answer = () => found(30, 1);
    const { pod } = await judge({ containers: [...one.containers, { name: "d", image: "shop/app:1" }] });
    assert.deepEqual(Object(pod).metadata.annotations, {
      "kubernetes.io/initial-resources":
        "Initial Resources plugin set: cpu, memory request for container c; cpu, memory request for container d",
    });
    await judge(one);
    assert.equal(asked.length, 2);
  });
  it("is not asked about more than ten images of a pod", async () => {
    answer = () => found(30, 1);
    await judge({ containers: Array.from({ length: 50 }, (_, n) => ({ name: `c${n}`, image: `shop/app:${n}` })) });
    assert.equal(asked.length, 20);
  });
  it("is asked for the image under the names that runtimes report", async () => {
    answer = () => [];
    await requested({}, { containers: [{ name: "c", image: "nginx" }] });
    const [exact, , loose] = asked.filter(({ resource }) => resource === "cpu");
    const fitting = [
      "nginx",
      "docker.io/library/nginx:latest",
      "docker.io/library/nginx:1",
      "docker.io/library/nginxy:1",
    ];
    assert.deepEqual(
      fitting.map((image) => exact?.fits(image)),
      [true, true, false, false],
    );
    assert.deepEqual(
      fitting.map((image) => loose?.fits(image)),
      [true, true, true, false],
    );
  });
  it("is asked for a registry with a port, and its dots are dots", async () => {
    answer = () => [];
    await requested({}, { containers: [{ name: "c", image: "reg.example:5000/a/b:1.2" }] });
    const [exact, , loose] = asked.filter(({ resource }) => resource === "cpu");
    assert.ok(exact?.fits("reg.example:5000/a/b:1.2") && !exact.fits("reg.example:5000/a/b:1x2"));
    assert.ok(loose?.fits("reg.example:5000/a/b:3") && !loose.fits("regxexample:5000/a/b:3"));
  });
  it("is not asked for what is no image", async () => {
    answer = () => assert.fail("it is asked");
    for (const image of ['a"} or vector(1) #', "a|.*", "a\\", "A", ".*", "", `${"a/".repeat(5000)}b`])
      assert.equal(await requested({}, { containers: [{ name: "c", image }] }), undefined, image);
  });
  it("keeps no pod out when it fails, and gives what it knows", async () => {
    answer = ({ resource }) => (resource === "cpu" ? 503 : found(30, 7));
    const { pod, audit } = await judge(one);
    assert.deepEqual(Object(pod.spec).containers[0].resources.requests, { memory: "7" });
    assert.deepEqual(audit, { "not-answered": "Prometheus answers 503: query timed out" });
  });
  it("keeps no pod out when nobody is there", async () => {
    const { pod, audit } = await judge(one, { prometheus: { url: "https://127.0.0.1:1" } });
    assert.deepEqual(pod.spec, one);
    assert.match(String(audit?.["not-answered"]), /^could not ask 127\.0\.0\.1:1: /);
  });
});

describe("an answer to initial-resources", () => {
  const saying = (result: unknown) => {
    const body = JSON.stringify({ status: "success", data: { resultType: "vector", result } });
    return readAnswer({ status: 200, body });
  };
  const nothing = { samples: 0, usage: 0 };

  it("says nothing with what is no sample", () => {
    const odd = JSON.parse('{ "toString": 1, "valueOf": 1 }');
    for (const value of [undefined, null, 7, "text", {}, [], [1], [1, null], [1, odd], [1, ["5"]], [1, "-5"], [1, "x"]])
      assert.deepEqual(saying([{ metric: { is: "usage" }, value }]), nothing, JSON.stringify(value));
    for (const one of [null, 1, "text", [], {}, { metric: null }, { metric: "usage" }])
      assert.deepEqual(saying([one]), nothing, JSON.stringify(one));
    const value = [1, "5"];
    assert.deepEqual(saying([null, { metric: { is: "usage" }, value }]), { samples: 0, usage: 5 });
  });
  const odd = fc.dictionary(
    fc.constantFrom("metric", "is", "value", "toString", "valueOf", "__proto__"),
    fc.jsonValue(),
  );
  const any = fc.oneof(fc.constant(null), fc.jsonValue(), odd);
  it("says a number, whatever is among its samples", () => {
    const metric = fc.oneof(fc.record({ is: fc.constantFrom("usage", "samples") }), any);
    const value = fc.oneof(fc.tuple(fc.double(), fc.oneof(fc.double().map(String), any)), any);
    const series = fc.array(fc.oneof(fc.record({ metric, value }), any), { maxLength: 5 });
    fc.assert(
      fc.property(series, (result) => {
        for (const number of Object.values(saying(result))) assert.ok(Number.isFinite(number) && number >= 0);
      }),
      { numRuns: 1000 },
    );
  });
  it("is one that nobody understands, whatever else it is", () => {
    const said = fc.record({ status: fc.oneof(fc.constant("success"), any), data: any, error: any });
    const body = fc.oneof(
      fc.oneof(said, any).map((one) => JSON.stringify(one)),
      fc.string(),
    );
    fc.assert(
      fc.property(fc.constantFrom(200, 400, 503), body, (status, body) =>
        assert.throws(() => readAnswer({ status, body }), Failure),
      ),
      { numRuns: 1000 },
    );
  });
});

describe("the settings of initial-resources", () => {
  const wrong = (given: object) =>
    initialResources.checkSettings?.(mergeWithDefaults(initialResources.settings ?? {}, given));
  const url = "https://prometheus.example";
  it("must have an address of https without a secret", () => {
    assert.match(wrong({}) ?? "", /^must have an https:/);
    assert.match(wrong({ prometheus: { url: "http://prometheus.example" } }) ?? "", /^must have an https:/);
    assert.match(wrong({ prometheus: { url: "https://me:secret@prometheus.example" } }) ?? "", /^must have no name/);
    assert.equal(wrong({ prometheus: { url } }), undefined);
  });
  it("must have a token in one place, and a region beside it", () => {
    const both = { url, tokenSecret: "a", tokenParameter: "b", region: "eu-west-1" };
    assert.match(wrong({ prometheus: both }) ?? "", /^must have one of tokenSecret and tokenParameter/);
    assert.match(wrong({ prometheus: { url, tokenSecret: "a" } }) ?? "", /^must have a region beside the token/);
    const arn = "arn:aws:ssm:eu-west-1:1:parameter/a";
    assert.equal(wrong({ prometheus: { url, tokenParameter: arn } }), undefined);
  });
  it("must have a percentile, metrics and a certificate that are such", () => {
    assert.match(wrong({ percentile: 101, prometheus: { url } }) ?? "", /^must have a percentile/);
    assert.match(wrong({ prometheus: { url, cpu: "a{}" } }) ?? "", /^must have the name of a metric/);
    assert.match(wrong({ prometheus: { url, ca: "no" } }) ?? "", /^must have a certificate/);
  });
});
