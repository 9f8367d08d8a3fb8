import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type HttpsAnswer, UnansweredError } from "#lib/cluster/https-request.ts";
import { readListPages } from "./pages.ts";
import type { ApiGet } from "./reader.ts";

/** What may happen when a page of a list of objects is requested from an API server. */
const troubles = [
  "none",
  "expired with a token", // the continue token in the request has expired, and the error has a new one
  "expired without a token", // the continue token in the request has expired, and the error has no new one
  "large page", // the page has more bytes than the client reads, unless it has only one object
  "created", // an object is created before the server answers
  "deleted", // an object is deleted before the server answers
] as const;
type Trouble = (typeof troubles)[number];

/** Makes the continue token in a 410 response differ from the token in the request. */
const newTokenMark = "\u0000";

const answer = (status: number, body: object): HttpsAnswer => ({
  status,
  body: JSON.stringify(body),
  retryAfter: undefined,
});
const buildObject = (name: string) => ({ metadata: { name, namespace: name.slice(0, 1) } });
const toKey = (name: string) => `${name.slice(0, 1)}/${name}`;

/**
 * Returns a reader that answers like an API server: each page begins after the last key of the page before it.
 * `troubles` has what happens before each request, in their order.
 */
const servePages = (names: Iterable<string>, troubles: readonly Trouble[]) => {
  const remaining = new Set(names);
  const requests: URL[] = [];
  const read: ApiGet = async (path) => {
    const url = new URL(path, "https://localhost");
    const trouble = troubles[requests.length] ?? "none";
    requests.push(url);
    // A continue token is the key of the last object in the page before.
    const token = url.searchParams.get("continue") ?? "";
    const limit = Number(url.searchParams.get("limit"));
    if (trouble === "large page" && limit > 1) return new UnansweredError("its answer has more than 10 bytes", "large");
    if (trouble.startsWith("expired") && token !== "")
      return answer(410, { metadata: trouble === "expired with a token" ? { continue: token + newTokenMark } : {} });
    if (trouble === "created") remaining.add(`m${requests.length}`);
    if (trouble === "deleted") remaining.delete([...remaining][0] ?? "");
    const all = [...remaining].sort((left, right) => (toKey(left) < toKey(right) ? -1 : 1));
    const items = all.filter((name) => toKey(name) > token.replace(newTokenMark, "")).slice(0, limit);
    const end = toKey(items.at(-1) ?? "");
    const remainingItemCount = all.filter((name) => toKey(name) > end).length;
    const metadata = remainingItemCount > 0 && items.length > 0 ? { continue: end, remainingItemCount } : {};
    return answer(200, { kind: "List", metadata, items: items.map(buildObject) });
  };
  return { read, remaining, requests };
};

/** Returns the names of all objects in a list, and the sentences about what could not be read. */
const readAll = async (read: ApiGet, objectsPerPage = 3) => {
  const [listed, broken] = [[] as string[], [] as string[]];
  const describeFailure = () => "refused";
  for await (const page of readListPages(read, { path: "/api/v1/things", objectsPerPage }, describeFailure)) {
    if ("broken" in page) broken.push(page.broken);
    else listed.push(...page.items.map(({ metadata }) => metadata?.name ?? ""));
  }
  return { listed, broken };
};

const name = fc.stringMatching(/^[a-c][a-d0-9-]{0,3}[a-d0-9]$/);
const trouble = fc.constantFrom<Trouble>(...troubles);

describe("the pages of a list", () => {
  it("the pages of a list have each object once and in order, even if lists expire and objects change", () =>
    fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(name, { maxLength: 40 }),
        fc.array(trouble, { maxLength: 30 }),
        async (names, troubles) => {
          const { read, remaining } = servePages(names, troubles);
          const { listed, broken } = await readAll(read);
          assert.equal(new Set(listed).size, listed.length, "an object is listed twice");
          assert.deepEqual(listed.map(toKey), listed.map(toKey).sort());
          // Reading gives up after six answers in a row without new objects: the list must have expired each time.
          const mayGiveUp = troubles.filter((trouble) => trouble.startsWith("expired")).length > 5;
          assert.deepEqual(broken, mayGiveUp && broken.length > 0 ? ["its list goes in circles"] : []);
          if (broken.length > 0) return;
          for (const left of names) if (remaining.has(left)) assert.ok(listed.includes(left), left);
        },
      ),
    ));
  it("a page is requested with fewer objects if the answer is too large, down to one object", async () => {
    const { read, requests } = servePages(["a1", "a2", "a3"], ["large page", "large page", "large page"]);
    assert.deepEqual((await readAll(read, 100)).listed, ["a1", "a2", "a3"]);
    assert.deepEqual(
      requests.slice(0, 4).map(({ searchParams }) => searchParams.get("limit")),
      ["100", "25", "7", "2"],
    );
  });
  it("reading a list ends with a fault if it always expires, or if a page repeats or is empty", async () => {
    const endlessLists: Record<string, ApiGet> = {
      forgetting: async () => answer(410, { metadata: {} }),
      "forgetting at the second page": async (path) =>
        path.includes("continue=")
          ? answer(410, {})
          : answer(200, { metadata: { continue: "a" }, items: [buildObject("a1")] }),
      "the same": async () => answer(200, { metadata: { continue: "a" }, items: [buildObject("a1")] }),
      "one after the other, for ever": async (path) => {
        const [here, next] = path.includes("continue=b") ? ["b1", "a"] : ["a1", "b"];
        return answer(200, { metadata: { continue: next }, items: [buildObject(here)] });
      },
      "the same under other names": async () =>
        answer(200, { metadata: { continue: String(Math.random()) }, items: [buildObject("a1")] }),
      empty: async () => answer(200, { metadata: { continue: String(Math.random()) }, items: [] }),
    };
    for (const [what, read] of Object.entries(endlessLists)) {
      const { broken } = await readAll(read);
      assert.deepEqual(broken, ["its list goes in circles"], what);
    }
  });
  it("reading a list ends with a fault if the answer is not a list of objects", async () => {
    const wrongAnswers: [response: HttpsAnswer | UnansweredError, sentence: string][] = [
      [answer(403, {}), "refused"],
      [new UnansweredError("gone"), "refused"],
      [answer(200, []), "the API server did not answer with a list"],
      [{ ...answer(200, {}), body: "<html>" }, "the API server did not answer with a list"],
      [answer(200, { items: { length: 3 } }), "the API server did not answer with a list"],
      [answer(200, { items: [null, 1, { metadata: { name: 3 } }] }), "some items of the list are not objects"],
    ];
    for (const [response, sentence] of wrongAnswers)
      assert.deepEqual(await readAll(async () => response), { listed: [], broken: [sentence] });
    assert.deepEqual(await readAll(async () => answer(200, { items: null })), { listed: [], broken: [] });
  });
});
