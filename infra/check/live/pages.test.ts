import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type HttpsAnswer, UnansweredError } from "#lib/cluster/https-request.ts";
import { readListPages } from "./pages.ts";
import type { ApiGet } from "./reader.ts";

/** The ways in which an API server doesn't return the next page. */
type Trouble = "none" | "expired, with a token" | "expired" | "too large" | "made" | "removed";

const answer = (status: number, body: object): HttpsAnswer => ({
  status,
  body: JSON.stringify(body),
  retryAfter: undefined,
});
const named = (name: string) => ({ metadata: { name, namespace: name.slice(0, 1) } });
const keyOf = (name: string) => `${name.slice(0, 1)}/${name}`;

/** A list as an API server pages it, by the key of the last object, and what goes wrong meanwhile, page by page. */
const served = (names: Iterable<string>, troubles: readonly Trouble[]) => {
  const left = new Set(names);
  const asked: URL[] = [];
  const read: ApiGet = async (path) => {
    const url = new URL(path, "https://localhost");
    const trouble = troubles[asked.length] ?? "none";
    asked.push(url);
    const last = url.searchParams.get("continue") ?? "";
    const limit = Number(url.searchParams.get("limit"));
    if (trouble === "too large" && limit > 1) return new UnansweredError("its answer has more than 10 bytes");
    if (trouble.startsWith("expired") && last !== "")
      return answer(410, { metadata: trouble === "expired" ? {} : { continue: `${last}\u0000` } });
    if (trouble === "made") left.add(`m${asked.length}`);
    if (trouble === "removed") left.delete([...left][0] ?? "");
    const all = [...left].sort((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
    const items = all.filter((one) => keyOf(one) > last.replace("\u0000", "")).slice(0, limit);
    const rest = all.filter((one) => keyOf(one) > keyOf(items.at(-1) ?? "")).length;
    const further =
      rest > 0 && items.length > 0 ? { continue: keyOf(items.at(-1) ?? ""), remainingItemCount: rest } : {};
    return answer(200, { kind: "List", metadata: further, items: items.map(named) });
  };
  return { read, left, asked };
};

const all = async (read: ApiGet, limit = 3) => {
  const [told, broken] = [[] as string[], [] as string[]];
  for await (const page of readListPages(read, () => "refused", "/api/v1/things", {}, limit)) {
    if ("broken" in page) broken.push(page.broken);
    else told.push(...page.items.map(({ metadata }) => metadata?.name ?? ""));
  }
  return { told, broken };
};

const name = fc.stringMatching(/^[a-c][a-d0-9-]{0,3}[a-d0-9]$/);
const trouble = fc.constantFrom<Trouble[]>("none", "expired, with a token", "expired", "too large", "made", "removed");

describe("the pages of a list", () => {
  it("contain each object once and in order, even if lists expire and objects are created and deleted meanwhile", () =>
    fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(name, { maxLength: 40 }),
        fc.array(trouble, { maxLength: 30 }),
        async (names, troubles) => {
          const inRow = /(expired[^,]*,?){5}/.test(troubles.join(","));
          fc.pre(!inRow);
          const { read, left } = served(names, troubles);
          const { told, broken } = await all(read);
          assert.deepEqual(broken, []);
          assert.equal(new Set(told).size, told.length, "twice");
          assert.deepEqual(told.map(keyOf), told.map(keyOf).sort());
          for (const one of names) if (left.has(one)) assert.ok(told.includes(one), one);
        },
      ),
    ));
  it("are asked for in parts where one is too large, and one by one in the end", async () => {
    const { read, asked } = served(["a1", "a2", "a3"], ["too large", "too large", "too large"]);
    assert.deepEqual((await all(read, 100)).told, ["a1", "a2", "a3"]);
    assert.deepEqual(
      asked.slice(0, 4).map(({ searchParams }) => searchParams.get("limit")),
      ["100", "25", "7", "2"],
    );
  });
  it("end where the API server forgets again and again, shows the same page for ever, or pages with nothing in them", async () => {
    const circles: Record<string, ApiGet> = {
      forgetting: async () => answer(410, { metadata: {} }),
      "forgetting at the second page": async (path) =>
        path.includes("continue=")
          ? answer(410, {})
          : answer(200, { metadata: { continue: "a" }, items: [named("a1")] }),
      "the same": async () => answer(200, { metadata: { continue: "a" }, items: [named("a1")] }),
      "one after the other, for ever": async (path) => {
        const [here, next] = path.includes("continue=b") ? ["b1", "a"] : ["a1", "b"];
        return answer(200, { metadata: { continue: next }, items: [named(here)] });
      },
      "the same under other names": async () =>
        answer(200, { metadata: { continue: String(Math.random()) }, items: [named("a1")] }),
      empty: async () => answer(200, { metadata: { continue: String(Math.random()) }, items: [] }),
    };
    for (const [what, read] of Object.entries(circles)) {
      const { broken } = await all(read);
      assert.deepEqual(broken, ["its list goes in circles"], what);
    }
  });
  it("are none of what is no list, or holds no objects", async () => {
    const odd: [HttpsAnswer | UnansweredError, string][] = [
      [answer(403, {}), "refused"],
      [new UnansweredError("gone"), "refused"],
      [answer(200, []), "the API server answers no list"],
      [{ ...answer(200, {}), body: "<html>" }, "the API server answers no list"],
      [answer(200, { items: { length: 3 } }), "the API server answers no list"],
      [answer(200, { items: [null, 1, { metadata: { name: 3 } }] }), "what the API server lists is no objects"],
    ];
    for (const [said, sentence] of odd) assert.deepEqual(await all(async () => said), { told: [], broken: [sentence] });
    assert.deepEqual(await all(async () => answer(200, { items: null })), { told: [], broken: [] });
  });
});
