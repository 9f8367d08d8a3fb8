/** Whether two values of JSON are the same, in whatever order their members stand. */
export const isSame = (one: unknown, other: unknown): boolean => {
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return one === other;
  const keys = Object.keys(one);
  if (Array.isArray(one) !== Array.isArray(other) || keys.length !== Object.keys(other).length) return false;
  return keys.every((key) => Object.hasOwn(other, key) && isSame(Reflect.get(one, key), Reflect.get(other, key)));
};
