import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { Failure } from "postern/failure";
import type { Pod } from "postern/kubernetes/core/v1";
import type { HttpsRequest, HttpsResponse } from "postern/needs";
import type { AdmissionRequest } from "postern/review";
import { applyOutcomePatch, createRecordedCapabilities, openRule } from "postern/test";
import { parsePrometheusUsage } from "./usage-history.ts";

const { decide } = await openRule(import.meta.dirname);

/** The parts of a PromQL query of the rule. */
interface Query {
  resource: "cpu" | "memory";
  /** Reports whether the query selects the samples that have this text as their label `image`. */
  matches(imageLabel: string): boolean;
  onlySameTag: boolean;
  namespace: string | undefined;
  days: number;
}

describe("initial-resources", () => {
  const sent: Query[] = [];
  let requests: HttpsRequest[];
  let answer: (query: Query) => object | number;
  beforeEach(() => {
    sent.length = 0;
    requests = [];
  });

  const parseQuery = (text: string): Query => {
    const [, metric, label = '""', namespace, rate, days] =
      /(container_\w+)\{image=~("(?:[^"\\]|\\.)*")(?:,namespace=("(?:[^"\\]|\\.)*"))?\}(\[5m\]\))?\[(\d+)d:10m\]/.exec(
        text,
      ) ?? [];
    assert.ok(metric && days, text);
    assert.equal(rate !== undefined, metric === "container_cpu_usage_seconds_total");
    const pattern: string = JSON.parse(label);
    return {
      resource: rate ? "cpu" : "memory",
      matches: (imageLabel) => new RegExp(`^(?:${pattern})$`).test(imageLabel),
      onlySameTag: !pattern.endsWith("(?:[:@].*)?"),
      namespace: namespace && JSON.parse(namespace),
      days: Number(days),
    };
  };
  const queryPrometheus = async (request: HttpsRequest): Promise<HttpsResponse> => {
    requests.push(request);
    const { pathname, searchParams } = new URL(request.url);
    assert.equal(pathname, "/prometheus/api/v1/query");
    const query = parseQuery(searchParams.get("query") ?? "");
    sent.push(query);
    const result = answer(query);
    return typeof result === "number"
      ? { status: result, body: '{"status": "error", "errorType": "execution", "error": "query timed out"}' }
      : { status: 200, body: JSON.stringify({ status: "success", data: { resultType: "vector", result } }) };
  };
  const buildResult = (samples: number, usage: number | string) => [
    { metric: { is: "usage" }, value: [1.5, `${usage}`] },
    { metric: { is: "samples" }, value: [1.5, `${samples}`] },
  ];
  const onePod = { containers: [{ name: "c", image: "shop/app:1" }] };
  const createPod = async (spec: object = onePod, settings: object = {}, https = queryPrometheus) => {
    const object = { metadata: { name: "a" }, spec };
    const request: AdmissionRequest = {
      uid: "1",
      kind: { group: "", version: "v1", kind: "Pod" },
      resource: { group: "", version: "v1", resource: "pods" },
      name: "a",
      namespace: "shop",
      operation: "CREATE",
      userInfo: { username: "jane" },
      object,
    };
    const { outcome } = await decide("mutate", request, {
      settings: { prometheus: { url: "https://127.0.0.1/prometheus/" }, ...settings },
      capabilities: { ...createRecordedCapabilities({}), https },
    });
    const pod = applyOutcomePatch(object, outcome) as Pod;
    return { pod, requests: pod.spec?.containers?.[0]?.resources?.requests, audit: outcome.audit };
  };
  /** Describes the queries about a resource, such as `7 tag shop`: 7 days, only the same tag, the namespace shop. */
  const listStages = (resource: string) =>
    sent
      .filter((query) => query.resource === resource)
      .map(({ days, onlySameTag, namespace }) =>
        [days, onlySameTag ? "tag" : "image", namespace ?? "everywhere"].join(" "),
      );

  it("initial-resources queries only the last week of the namespace if that has enough samples", async () => {
    answer = ({ resource }) => buildResult(30, resource === "cpu" ? 0.2501 : 104_857_600);
    assert.deepEqual((await createPod()).requests, { cpu: "251m", memory: "104857600" });
    assert.deepEqual(listStages("cpu"), ["7 tag shop"]);
    assert.deepEqual(listStages("memory"), ["7 tag shop"]);
  });
  it("initial-resources queries 30 days and then other tags if there are too few samples", async () => {
    answer = () => buildResult(29, 1);
    assert.deepEqual((await createPod()).requests, { cpu: "1", memory: "1" });
    assert.deepEqual(listStages("cpu"), ["7 tag shop", "30 tag shop", "30 image shop"]);
  });
  it("initial-resources queries all namespaces if namespaceOnly is false", async () => {
    answer = ({ onlySameTag }) => (onlySameTag ? [] : buildResult(1, 2_000_000));
    assert.equal((await createPod(onePod, { namespaceOnly: false })).requests?.memory, "2M");
    const everywhere = ["7 tag everywhere", "30 tag everywhere", "30 image everywhere"];
    assert.deepEqual(listStages("memory"), ["7 tag shop", "30 tag shop", ...everywhere]);
  });
  it("initial-resources sets nothing if the last answer has no samples, whatever came before", async () => {
    answer = ({ days }) => (days === 7 ? buildResult(29, 5) : []);
    assert.equal((await createPod()).requests, undefined);
  });
  it("initial-resources sets nothing if there are no samples", async () => {
    answer = () => buildResult(0, "NaN");
    assert.equal((await createPod()).requests, undefined);
  });
  it("initial-resources queries an image once for all containers, and keeps answers for ten minutes", async () => {
    answer = () => buildResult(30, 1);
    const { pod } = await createPod({ containers: [...onePod.containers, { name: "d", image: "shop/app:1" }] });
    assert.deepEqual(pod.metadata?.annotations, {
      "kubernetes.io/initial-resources":
        "Initial Resources plugin set: cpu, memory request for container c; cpu, memory request for container d",
    });
    assert.equal(sent.length, 2, "cpu and memory");
    const keep = requests[0]?.keep;
    assert.deepEqual([keep?.({ status: 200, body: "" }), keep?.({ status: 503, body: "" })], [600, 0]);
  });
  it("initial-resources queries at most ten images of a pod", async () => {
    answer = () => buildResult(30, 1);
    await createPod({ containers: Array.from({ length: 50 }, (_, n) => ({ name: `c${n}`, image: `shop/app:${n}` })) });
    assert.equal(sent.length, 20);
  });
  it("initial-resources queries an image under the names that runtimes report", async () => {
    answer = () => [];
    const names = [
      "nginx",
      "docker.io/library/nginx:latest",
      "docker.io/library/nginx:1",
      "docker.io/library/nginxy:1",
    ];
    await createPod({ containers: [{ name: "c", image: "nginx" }] });
    const [sameTag, , anyTag] = sent.filter(({ resource }) => resource === "cpu");
    const selectNames = (query: Query | undefined) => names.filter((image) => query?.matches(image));
    assert.deepEqual(selectNames(sameTag), names.slice(0, 2));
    assert.deepEqual(selectNames(anyTag), names.slice(0, 3));
  });
  it("initial-resources escapes the dots of an image, and accepts a registry with a port", async () => {
    answer = () => [];
    await createPod({ containers: [{ name: "c", image: "reg.example:5000/a/b:1.2" }] });
    const [sameTag, , anyTag] = sent.filter(({ resource }) => resource === "cpu");
    assert.ok(sameTag?.matches("reg.example:5000/a/b:1.2") && !sameTag.matches("reg.example:5000/a/b:1x2"));
    assert.ok(anyTag?.matches("reg.example:5000/a/b:3") && !anyTag.matches("regxexample:5000/a/b:3"));
  });
  it("initial-resources queries nothing for an invalid image", async () => {
    answer = () => assert.fail("it queries Prometheus");
    for (const image of ['a"} or vector(1) #', "a|.*", "a\\", "A", ".*", "", `${"a/".repeat(5000)}b`])
      assert.equal((await createPod({ containers: [{ name: "c", image }] })).requests, undefined, image);
  });
  it("initial-resources sets the other values if one query fails", async () => {
    answer = ({ resource }) => (resource === "cpu" ? 503 : buildResult(30, 7));
    const { requests, audit } = await createPod();
    assert.deepEqual(requests, { memory: "7" });
    assert.deepEqual(audit, { "not-answered": "Prometheus answers 503: query timed out" });
  });
  it("initial-resources admits a pod if Prometheus can't be reached", async () => {
    const fail = async () => {
      throw new Failure(503, "could not ask 127.0.0.1:1");
    };
    const { pod, audit } = await createPod(onePod, {}, fail);
    assert.deepEqual(pod.spec, onePod);
    assert.deepEqual(audit, { "not-answered": "could not ask 127.0.0.1:1" });
  });
});

describe("parsePrometheusUsage", () => {
  const readResult = (result: unknown) => {
    const body = JSON.stringify({ status: "success", data: { resultType: "vector", result } });
    return parsePrometheusUsage({ status: 200, body });
  };
  const nothing = { samples: 0, usage: 0 };

  it("parsePrometheusUsage returns 0 for malformed samples and series", () => {
    const odd = JSON.parse('{ "toString": 1, "valueOf": 1 }');
    for (const value of [undefined, null, 7, "text", {}, [], [1], [1, null], [1, odd], [1, ["5"]], [1, "-5"], [1, "x"]])
      assert.deepEqual(readResult([{ metric: { is: "usage" }, value }]), nothing, JSON.stringify(value));
    for (const series of [null, 1, "text", [], {}, { metric: null }, { metric: "usage" }])
      assert.deepEqual(readResult([series]), nothing, JSON.stringify(series));
    const value = [1, "5"];
    assert.deepEqual(readResult([null, { metric: { is: "usage" }, value }]), { samples: 0, usage: 5 });
  });
});
