import { testPages } from "../pages.ts";

testPages("local", async () => ({ env: {}, stop: async () => {} }));
