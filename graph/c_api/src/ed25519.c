/* Verifies Ed25519 signatures: RFC 8032, section 5.1. Nothing in it is secret, so that its time may depend on the values.

   A number modulo p = 2^255 - 19 is five limbs of 51 bits, which may have a few bits more between operations. */
#include "internal.h"

__extension__ typedef unsigned __int128 wide;

typedef struct number {
  uint64_t limbs[5];
} number;

#define MASK ((UINT64_C(1) << 51) - 1)

static number carried(number a) {
  uint64_t carry = 0;
  for (int k = 0; k < 5; k++) {
    a.limbs[k] += carry;
    carry = a.limbs[k] >> 51;
    a.limbs[k] &= MASK;
  }
  a.limbs[0] += 19 * carry;
  return a;
}

static number small(uint64_t value) { return (number){{value, 0, 0, 0, 0}}; }

static number add(number a, number b) {
  for (int k = 0; k < 5; k++) a.limbs[k] += b.limbs[k];
  return carried(a);
}

/* a - b + 4p, which is not negative. */
static number subtract(number a, number b) {
  for (int k = 0; k < 5; k++) a.limbs[k] += 4 * (k == 0 ? MASK - 18 : MASK) - b.limbs[k];
  return carried(a);
}

static __attribute__((noinline)) number multiply(number a, number b) {
  wide sums[5];
  for (int k = 0; k < 5; k++) {
    sums[k] = 0;
    for (int i = 0; i < 5; i++) {
      int j = k - i;
      sums[k] += (wide)a.limbs[i] * (j >= 0 ? b.limbs[j] : 19 * b.limbs[j + 5]);
    }
  }
  number result;
  wide carry = 0;
  for (int k = 0; k < 5; k++) {
    sums[k] += carry;
    carry = sums[k] >> 51;
    result.limbs[k] = (uint64_t)sums[k] & MASK;
  }
  wide low = (wide)result.limbs[0] + 19 * carry;
  result.limbs[0] = (uint64_t)low & MASK;
  result.limbs[1] += (uint64_t)(low >> 51);
  return result;
}

/* a to the power 2^bits - minus, where minus is below 32. */
static number power(number a, int bits, unsigned minus) {
  number result = a; /* the highest bit of the exponent is 1 */
  for (int k = bits - 2; k >= 0; k--) {
    result = multiply(result, result);
    if (k >= 5 || (32 - minus) >> k & 1) result = multiply(result, a);
  }
  return result;
}

static number inverse(number a) { return power(a, 255, 21); }

/* The value below p, little-endian. */
static void write_number(unsigned char *bytes, number a) {
  for (int turn = 0; turn < 3; turn++) a = carried(a);
  number less = a; /* a + 19 - 2^255: not negative exactly where a is not below p */
  less.limbs[0] += 19;
  for (int k = 0; k < 4; k++) {
    less.limbs[k + 1] += less.limbs[k] >> 51;
    less.limbs[k] &= MASK;
  }
  if (less.limbs[4] >> 51) {
    less.limbs[4] &= MASK;
    a = less;
  }
  for (int k = 0; k < 32; k++) {
    int bit = 8 * k, limb = bit / 51, shift = bit % 51;
    uint64_t value = a.limbs[limb] >> shift;
    if (shift > 43 && limb < 4) value |= a.limbs[limb + 1] << (51 - shift);
    bytes[k] = (unsigned char)value;
  }
}

/* The low 255 bits. */
static number read_number(const unsigned char *bytes) {
  number result = small(0);
  for (int bit = 0; bit < 255; bit++) result.limbs[bit / 51] |= (uint64_t)(bytes[bit / 8] >> bit % 8 & 1) << bit % 51;
  return result;
}

static bool is_equal(number a, number b) {
  unsigned char left[32], right[32];
  write_number(left, a);
  write_number(right, b);
  return memcmp(left, right, 32) == 0;
}

static bool is_odd(number a) {
  unsigned char bytes[32];
  write_number(bytes, a);
  return bytes[0] & 1;
}

/* *** points: section 5.1.4, extended homogeneous coordinates *** */

typedef struct point {
  number x, y, z, t;
} point;

typedef struct curve {
  number d, twice_d, root; /* the root of -1 */
  point base;
} curve;

static point add_points(const curve *curve, const point *p, const point *q) {
  number a = multiply(subtract(p->y, p->x), subtract(q->y, q->x));
  number b = multiply(add(p->y, p->x), add(q->y, q->x));
  number c = multiply(multiply(p->t, curve->twice_d), q->t);
  number d = multiply(add(p->z, p->z), q->z);
  number e = subtract(b, a), f = subtract(d, c), g = add(d, c), h = add(b, a);
  return (point){multiply(e, f), multiply(g, h), multiply(f, g), multiply(e, h)};
}

static point twice(const point *p) {
  number a = multiply(p->x, p->x), b = multiply(p->y, p->y), c = multiply(add(p->z, p->z), p->z);
  number sum = add(p->x, p->y), h = add(a, b), e = subtract(h, multiply(sum, sum));
  number g = subtract(a, b), f = add(c, g);
  return (point){multiply(e, f), multiply(g, h), multiply(f, g), multiply(e, h)};
}

/* The point of a y and a sign of x: section 5.1.3. False: there is none. As in OpenSSL, a y that is not below p counts as
   its remainder, and a sign of x = 0 does not count: what Python accepts is accepted here. */
static bool find_point(const curve *curve, number y, bool odd, point *result) {
  number square = multiply(y, y), one = small(1);
  number u = subtract(square, one), v = add(multiply(curve->d, square), one);
  number v3 = multiply(multiply(v, v), v), v7 = multiply(multiply(v3, v3), v);
  number x = multiply(multiply(u, v3), power(multiply(u, v7), 252, 3));
  number check = multiply(v, multiply(x, x));
  if (!is_equal(check, u)) {
    if (!is_equal(check, subtract(small(0), u))) return false;
    x = multiply(x, curve->root);
  }
  if (is_odd(x) != odd) x = subtract(small(0), x);
  *result = (point){x, y, one, multiply(x, y)};
  return true;
}

/* The curve's numbers: section 5.1. The base point has y = 4/5. */
static void make_curve(curve *curve) {
  curve->d = subtract(small(0), multiply(small(121665), inverse(small(121666))));
  curve->twice_d = add(curve->d, curve->d);
  curve->root = power(small(2), 253, 5);
  find_point(curve, multiply(small(4), inverse(small(5))), false, &curve->base);
}

/* *** scalars modulo L = 2^252 + 27742317777372353535851937790883648493, four words *** */

static const uint64_t order[4] = {UINT64_C(0x5812631a5cf5d3ed), UINT64_C(0x14def9dea2f79cd6), 0, UINT64_C(1) << 60};

static bool is_below_order(const uint64_t *words) {
  for (int k = 3; k >= 0; k--)
    if (words[k] != order[k]) return words[k] < order[k];
  return false;
}

/* Takes bit after bit from the top: what is held stays below L. */
static void reduce(const unsigned char *bytes, int bits, uint64_t *words) {
  memset(words, 0, 4 * sizeof *words);
  for (int bit = bits - 1; bit >= 0; bit--) {
    for (int k = 3; k >= 0; k--) words[k] = words[k] << 1 | (k > 0 ? words[k - 1] >> 63 : 0);
    words[0] |= bytes[bit / 8] >> bit % 8 & 1;
    if (is_below_order(words)) continue;
    uint64_t borrow = 0;
    for (int k = 0; k < 4; k++) {
      wide rest = (wide)words[k] - order[k] - borrow;
      words[k] = (uint64_t)rest;
      borrow = (uint64_t)(rest >> 64) & 1;
    }
  }
}

static bool bit_of(const uint64_t *words, int bit) { return words[bit / 64] >> bit % 64 & 1; }

/* Section 5.1.7, without the cofactor: R = [S]B - [k]A, compared as bytes. */
bool verify_signature(const unsigned char *key, const unsigned char *signature, const void *prefix, size_t prefix_size,
                      const void *message, size_t size) {
  uint64_t s[4], k[4];
  unsigned char hash[64], found[32];
  for (int word = 0; word < 4; word++) {
    s[word] = 0;
    for (int byte = 7; byte >= 0; byte--) s[word] = s[word] << 8 | signature[32 + 8 * word + byte];
  }
  curve curve;
  point a;
  make_curve(&curve);
  if (!is_below_order(s) || !find_point(&curve, read_number(key), key[31] >> 7, &a)) return false;
  digest digest;
  digest_start(&digest, true);
  digest_add(&digest, signature, 32);
  digest_add(&digest, key, 32);
  digest_add(&digest, prefix, prefix_size);
  digest_add(&digest, message, size);
  digest_end(&digest, hash);
  reduce(hash, 512, k);
  a.x = subtract(small(0), a.x);
  a.t = subtract(small(0), a.t);
  point sum = {small(0), small(1), small(1), small(0)};
  for (int bit = 252; bit >= 0; bit--) {
    sum = twice(&sum);
    if (bit_of(s, bit)) sum = add_points(&curve, &sum, &curve.base);
    if (bit_of(k, bit)) sum = add_points(&curve, &sum, &a);
  }
  number scale = inverse(sum.z);
  write_number(found, multiply(sum.y, scale));
  found[31] |= (unsigned char)(is_odd(multiply(sum.x, scale)) << 7);
  return memcmp(found, signature, 32) == 0;
}
